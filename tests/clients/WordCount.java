import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Kafka Streams, exactly once: words counted behind a repartition topic, lines joined with a table, a restart. */
public class WordCount {
    private static final long SECONDS = 60;
    private static final int LINES = 100;
    private static final String BUILT_IN = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$";

    public static void main(String[] arguments) throws Exception {
        Properties shared = new Properties();
        shared.put("bootstrap.servers", arguments[0]);
        Properties streams = new Properties();
        streams.putAll(shared);
        streams.put("application.id", arguments[1]);
        streams.put("state.dir", arguments[2]);
        streams.put("processing.guarantee", "exactly_once_v2");
        streams.put("num.stream.threads", "2");
        streams.put("commit.interval.ms", "50");
        streams.put("statestore.cache.max.bytes", "0");
        streams.put("dsl.store.suppliers.class", BUILT_IN + "InMemoryDslStoreSuppliers");
        streams.put("default.key.serde", Serdes.StringSerde.class);
        streams.put("default.value.serde", Serdes.StringSerde.class);
        String name = arguments[1];

        for (int round = 1; round <= 2; round++) {
            // The second round finds no state here and gets it from the changelog topics.
            try (KafkaStreams running = new KafkaStreams(topology(name).build(), streams)) {
                running.cleanUp();
                running.setUncaughtExceptionHandler(WordCount::failed);
                running.start();
                produce(shared, name);
                await(shared, name, round * LINES);
                running.close(CloseOptions.timeout(Duration.ofSeconds(SECONDS))
                    .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
            }
        }
        System.exit(0);
    }

    private static StreamThreadExceptionResponse failed(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    }

    private static StreamsBuilder topology(String name) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(name + "-lines");
        KTable<String, String> users = builder.table(name + "-users");
        lines.flatMapValues(line -> List.of(line.split(" "))).groupBy((user, word) -> word)
            .count(Materialized.as("counts")).toStream().to(name + "-counts", Produced.valueSerde(Serdes.Long()));
        lines.join(users, (line, user) -> (long) user.length())
            .to(name + "-joined", Produced.valueSerde(Serdes.Long()));
        return builder;
    }

    private static void produce(Properties shared, String name) {
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(shared, text, text)) {
            for (int user = 0; user < 5; user++) {
                producer.send(new ProducerRecord<>(name + "-users", "u" + user, "name"));
            }
            for (int line = 0; line < LINES; line++) {
                producer.send(new ProducerRecord<>(name + "-lines", "u" + line % 5, "all w" + line % 2));
            }
        }
    }

    /** Wait until the last count of every line is committed, and print what is in the topics. */
    private static void await(Properties shared, String name, int lines) {
        Properties committed = new Properties();
        committed.putAll(shared);
        committed.put("isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(committed, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : List.of(name + "-counts", name + "-joined")) {
                consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<String, Long> counts = new TreeMap<>();
            int counted = 0;
            int joined = 0;
            long end = System.nanoTime() + Duration.ofSeconds(SECONDS).toNanos();
            while (System.nanoTime() < end && (counted < 2 * lines || joined < lines)) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    if (record.topic().endsWith("-joined")) {
                        joined++;
                    } else {
                        counted++;
                        counts.put(record.key(), record.value());
                    }
                }
            }
            System.out.println(counts + " by " + counted + " records, joined " + joined);
        }
    }
}
