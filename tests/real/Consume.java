import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own Java consumer over partition 0 of topics: {@code Consume <bootstrap> <topic>...}, one line per record.
 *
 * <p>For each topic: everything read_uncommitted, everything read_committed, then a group that reads at least half,
 * commits, ends, and comes back for the rest. A line: reader, topic, offset, timestamp type and timestamp, key, value and
 * headers in base64, "-" for null. A group's second life ends where no record came for ten seconds, or at the log's end.
 */
public final class Consume {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long PATIENCE_MS = 10_000;

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        for (int i = 1; i < arguments.length; i++) {
            TopicPartition partition = new TopicPartition(arguments[i], 0);
            int all = readAll(bootstrap, partition, "read_uncommitted");
            readAll(bootstrap, partition, "read_committed");
            readInGroup(bootstrap, partition, "first", all / 2);
            readInGroup(bootstrap, partition, "second", Integer.MAX_VALUE);
        }
    }

    private static int readAll(String bootstrap, TopicPartition partition, String isolation) {
        try (KafkaConsumer<byte[], byte[]> consumer = open(bootstrap, Map.of("isolation.level", isolation))) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            return read(consumer, partition, isolation, Integer.MAX_VALUE);
        }
    }

    private static void readInGroup(String bootstrap, TopicPartition partition, String life, int atLeast) {
        Map<String, String> settings = Map.of("group.id", "restarted-" + partition.topic(), "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = open(bootstrap, settings)) {
            consumer.subscribe(List.of(partition.topic()));
            read(consumer, partition, life, atLeast);
            consumer.commitSync();
        }
    }

    private static int read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String reader, int atLeast) {
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        long lastMs = System.currentTimeMillis();
        int count = 0;
        while (count < atLeast && System.currentTimeMillis() - lastMs < PATIENCE_MS) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                print(reader, record);
                count++;
                lastMs = System.currentTimeMillis();
            }
            if (consumer.assignment().contains(partition) && consumer.position(partition) >= end) {
                break;
            }
        }
        return count;
    }

    private static KafkaConsumer<byte[], byte[]> open(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", "7");
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void print(String reader, ConsumerRecord<byte[], byte[]> record) {
        List<String> words = new ArrayList<>(List.of(reader, record.topic(), Long.toString(record.offset())));
        words.add(Integer.toString(record.timestampType().id + 1));
        words.add(Long.toString(record.timestamp()));
        words.add(encoded(record.key()));
        words.add(encoded(record.value()));
        for (Header header : record.headers()) {
            words.add(encoded(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)));
            words.add(encoded(header.value()));
        }
        System.out.println(String.join(" ", words));
    }

    private static String encoded(byte[] bytes) {
        // Never an empty word: those would be lost between spaces.
        return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
    }
}
