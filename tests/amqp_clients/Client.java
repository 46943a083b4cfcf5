import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.RpcServer;
import com.rabbitmq.client.ShutdownSignalException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Tries what RabbitMQ's Java client does most, printing one line for each thing seen. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setRequestedHeartbeat(5);
        String name = arguments[1];
        try (Connection connection = factory.newConnection("java-client")) {
            publishAndConsume(connection, name + "-push");
            properties(connection, name + "-properties");
            errors(connection, name + "-errors");
            rpc(connection, name + "-rpc");
            cancelled(connection, name + "-cancelled");
        }
        System.out.println("closed");
    }

    static void publishAndConsume(Connection connection, String queue) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare(queue, true, false, true, Map.of("x-max-priority", 3));
        channel.confirmSelect();
        for (int number = 0; number < 1_000; number++) {
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, bytes("" + number));
        }
        channel.waitForConfirmsOrDie(10_000);
        System.out.println("confirmed " + channel.messageCount(queue));
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        channel.basicQos(100);
        channel.basicConsume(queue, false, (tag, delivery) -> {
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            seen.add(text(delivery.getBody()));
        }, tag -> {});
        List<String> all = new ArrayList<>();
        while (all.size() < 1_000) {
            all.add(seen.poll(10, TimeUnit.SECONDS));
        }
        boolean ordered = true;
        for (int number = 0; number < 1_000; number++) {
            ordered &= all.get(number).equals("" + number);
        }
        System.out.println("consumed " + all.size() + " ordered " + ordered);
        channel.close();
    }

    static void properties(Connection connection, String queue) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare(queue, false, true, true, null);
        Map<String, Object> headers = new HashMap<>();
        headers.put("long", 1L << 40);
        headers.put("list", List.of(1, "two"));
        headers.put("table", Map.of("a", true));
        AMQP.BasicProperties sent = new AMQP.BasicProperties.Builder()
            .contentType("text/plain").correlationId("c").headers(headers).priority(3).build();
        channel.basicPublish("", queue, sent, bytes("body"));
        GetResponse got = null;
        while (got == null) {
            got = channel.basicGet(queue, true);
        }
        AMQP.BasicProperties found = got.getProps();
        System.out.println("properties " + found.getContentType() + " " + found.getCorrelationId() + " "
            + found.getPriority() + " " + found.getHeaders().get("long") + " " + found.getHeaders().get("list")
            + " " + found.getHeaders().get("table"));
        channel.close();
    }

    static void errors(Connection connection, String queue) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.queueDeclarePassive(queue);
        } catch (java.io.IOException error) {
            AMQP.Channel.Close close =
                (AMQP.Channel.Close) ((ShutdownSignalException) error.getCause()).getReason();
            System.out.println("error " + close.getReplyCode() + " open " + channel.isOpen() + " "
                + connection.isOpen());
        }
        Channel returning = connection.createChannel();
        BlockingQueue<Integer> returned = new LinkedBlockingQueue<>();
        returning.addReturnListener(message -> returned.add(message.getReplyCode()));
        returning.basicPublish("", queue, true, null, bytes("nobody"));
        System.out.println("returned " + returned.poll(10, TimeUnit.SECONDS));
        returning.close();
    }

    static void rpc(Connection connection, String queue) throws Exception {
        Channel serving = connection.createChannel();
        serving.queueDeclare(queue, false, false, true, null);
        RpcServer server = new RpcServer(serving, queue) {
            @Override
            public byte[] handleCall(byte[] body, AMQP.BasicProperties properties) {
                return bytes(text(body).toUpperCase());
            }
        };
        Thread thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (Exception ended) {
                // The channel was closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
        Channel asking = connection.createChannel();
        RpcClient client = new RpcClient(
            new RpcClientParams().channel(asking).exchange("").routingKey(queue).timeout(10_000));
        System.out.println("answered " + text(client.primitiveCall(bytes("hello"))));
        client.close();
        asking.close();
        serving.close();
    }

    static void cancelled(Connection connection, String queue) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare(queue, false, false, false, null);
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, true, "mine", (tag, delivery) -> {}, cancelled::add);
        Channel other = connection.createChannel();
        other.queueDelete(queue);
        System.out.println("cancelled " + cancelled.poll(10, TimeUnit.SECONDS));
        channel.close();
        other.close();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
