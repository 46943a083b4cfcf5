import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;

/** Members of a share group that accept, release, reject and forget records; what they see goes to standard output. */
public class ShareQueue {
    private static String bootstrap;
    private static String topic;
    private static String group;
    private static KafkaProducer<String, String> producer;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        producer = new KafkaProducer<>(settings(
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer"));
        try (Admin admin = Admin.create(settings())) {
            admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 0L)).all().get();
        }
        try (Member first = new Member("explicit", 10)) {
            acknowledges(first);
            limits(first);
            try (Member second = new Member("explicit", 10)) {
                shares(first, second);
                expires(first, second);
            }
        }
        closes();
        implicit();
        producer.close();
    }

    private static void acknowledges(Member member) {
        produce("a", 6);
        List<ConsumerRecord<String, String>> records = member.take(6);
        show("taken", records);
        AcknowledgeType[] types = {
            AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT,
            AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT,
        };
        for (int i = 0; i < types.length; i++) {
            member.consumer.acknowledge(records.get(i), types[i]);
        }
        System.out.println("committed " + member.commit());
        records = member.take(2);
        show("again", records);
        member.all(records, AcknowledgeType.ACCEPT);
        System.out.println("committed " + member.commit());
    }

    private static void limits(Member member) {
        produce("b", 1);
        List<String> seen = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            List<ConsumerRecord<String, String>> records = member.take(1);
            seen.add(records.get(0).value() + "*" + records.get(0).deliveryCount().orElse((short) 0));
            member.all(records, AcknowledgeType.RELEASE);
            member.commit();
        }
        produce("c", 1);
        List<ConsumerRecord<String, String>> records = member.take(1);
        member.all(records, AcknowledgeType.ACCEPT);
        System.out.println("limit " + seen + " then " + records.get(0).value() + " " + member.commit());
    }

    private static void shares(Member first, Member second) {
        TreeSet<String> produced = new TreeSet<>();
        TreeSet<String> mine = new TreeSet<>();
        TreeSet<String> theirs = new TreeSet<>();
        until(() -> {
            boolean both = mine.size() >= 10 && theirs.size() >= 10;
            for (int i = 0; i < 20 && !both; i++) {
                String name = "d" + produced.size();
                produce(name, 1);
                produced.add(name);
            }
            take(first, mine);
            take(second, theirs);
            return both && mine.size() + theirs.size() >= produced.size();
        });
        TreeSet<String> all = new TreeSet<>(mine);
        all.addAll(theirs);
        mine.retainAll(theirs);
        System.out.println("shared " + all.equals(produced) + " twice " + mine);
    }

    private static void take(Member member, TreeSet<String> names) {
        List<ConsumerRecord<String, String>> records = member.poll(100);
        records.forEach(record -> names.add(record.value()));
        member.all(records, AcknowledgeType.ACCEPT);
        member.commit();
    }

    private static void expires(Member first, Member second) {
        produce("e", 1);
        List<ConsumerRecord<String, String>> held = new ArrayList<>();
        // Either of them may have a fetch under way.
        until(() -> held.addAll(first.poll(100)) || held.addAll(second.poll(100)));
        show("held", held);
        boolean isFirst = first.has(held);
        Member holder = isFirst ? first : second;
        Member other = isFirst ? second : first;
        List<ConsumerRecord<String, String>> records = other.take(1);
        // The holder's client may have a fetch under way too: then it has got the record once more, and let it lie.
        boolean again = records.get(0).deliveryCount().orElse((short) 0) > 1;
        System.out.println("expired " + records.get(0).value() + (again ? " again" : ""));
        holder.all(held, AcknowledgeType.ACCEPT);
        System.out.println("too late " + holder.commit());
        other.all(records, AcknowledgeType.ACCEPT);
        System.out.println("in time " + other.commit());
    }

    private static void closes() {
        produce("f", 1);
        try (Member member = new Member("explicit", 100)) {
            show("left", member.take(1));
        }
        try (Member member = new Member("explicit", 100)) {
            List<ConsumerRecord<String, String>> records = member.take(1);
            show("found", records);
            member.all(records, AcknowledgeType.RENEW);
            System.out.println("renewed " + member.commit());
            records = member.take(1);
            member.all(records, AcknowledgeType.ACCEPT);
            System.out.println("accepted " + member.commit());
        }
    }

    private static void implicit() {
        try (Member member = new Member("implicit", 100)) {
            produce("g", 3);
            TreeSet<String> seen = new TreeSet<>();
            until(() -> {
                member.poll(100).forEach(record -> seen.add(record.value()));
                return seen.size() >= 3;
            });
            System.out.println("implicit " + seen + " " + member.commit());
        }
    }

    private static void produce(String name, int count) {
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, 0, null, count == 1 ? name : name + i));
        }
        producer.flush();
    }

    private static void show(String what, List<ConsumerRecord<String, String>> records) {
        List<String> shown = new ArrayList<>();
        records.forEach(record -> shown.add(record.value() + "*" + record.deliveryCount().orElse((short) 0)));
        System.out.println(what + " " + shown);
    }

    private static void until(BooleanSupplier done) {
        long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("it takes too long");
            }
        }
    }

    private static Properties settings(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            settings.put(more[i], more[i + 1]);
        }
        return settings;
    }

    /** A member of the group. */
    private static final class Member implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;
        private List<ConsumerRecord<String, String>> last = List.of();

        Member(String mode, int most) {
            consumer = new KafkaShareConsumer<>(settings(
                "group.id", group,
                "share.acknowledgement.mode", mode,
                "share.acquire.mode", most < 100 ? "record_limit" : "batch_optimized",
                "max.poll.records", Integer.toString(most),
                "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
                "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"));
            consumer.subscribe(List.of(topic));
        }

        List<ConsumerRecord<String, String>> poll(int milliseconds) {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(milliseconds)).forEach(records::add);
            last = records;
            return records;
        }

        /** Take records in one poll or in several that follow each other without a word about them. */
        List<ConsumerRecord<String, String>> take(int count) {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            until(() -> {
                if (records.size() < count) {
                    records.addAll(poll(100));
                }
                return records.size() >= count;
            });
            return records;
        }

        /** Tell whether the last poll was the one that gave these records. */
        boolean has(List<ConsumerRecord<String, String>> records) {
            return !last.isEmpty() && last.equals(records);
        }

        void all(List<ConsumerRecord<String, String>> records, AcknowledgeType type) {
            records.forEach(record -> consumer.acknowledge(record, type));
        }

        String commit() {
            List<String> results = new ArrayList<>();
            Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
            outcome.values().forEach(each -> results.add(each.map(e -> e.getClass().getSimpleName()).orElse("ok")));
            return String.join(",", results);
        }

        @Override
        public void close() {
            consumer.close();
        }
    }
}
