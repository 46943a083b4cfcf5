import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Debezium's embedded engine into topics: DebeziumCapture BOOTSTRAP OFFSETS-FILE HOST PORT DATABASE USER PASSWORD TABLES. */
public class DebeziumCapture {
    public static void main(String[] args) throws Exception {
        Properties kafka = new Properties();
        kafka.setProperty("bootstrap.servers", args[0]);
        kafka.setProperty("compression.type", "lz4");
        kafka.setProperty("linger.ms", "5");
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(kafka, new StringSerializer(), new StringSerializer());

        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        settings.setProperty("offset.storage.file.filename", args[1]);
        settings.setProperty("offset.flush.interval.ms", "1000");
        settings.setProperty("database.hostname", args[2]);
        settings.setProperty("database.port", args[3]);
        settings.setProperty("database.dbname", args[4]);
        settings.setProperty("database.user", args[5]);
        settings.setProperty("database.password", args[6]);
        settings.setProperty("table.include.list", args[7]);
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("plugin.name", "pgoutput");
        settings.setProperty("slot.name", "debezium");
        settings.setProperty("publication.autocreate.mode", "filtered");
        settings.setProperty("converter.schemas.enable", "false");

        CountDownLatch ended = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(settings)
                        .using((success, message, error) -> {
                            System.err.println(message);
                            if (error != null) {
                                error.printStackTrace();
                            }
                            ended.countDown();
                        })
                        .notifying((records, committer) -> {
                            for (ChangeEvent<String, String> record : records) {
                                producer.send(
                                        new ProducerRecord<>(record.destination(), record.key(), record.value()));
                                committer.markProcessed(record);
                            }
                            producer.flush();
                            committer.markBatchFinished();
                        })
                        .build();
        new Thread(engine).start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                engine.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        ended.await();
        producer.close();
    }
}
