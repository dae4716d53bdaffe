import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Loads, in one JVM, the classes that a broker, its tools and its clients load in tests: what an archive of classes is made from.
 *
 * <p>{@code Train <bootstrap> <log directory> <main class> [argument...] [-- <main class> [argument...]]...}: the main classes
 * of ZooKeeper and the broker, each of which runs in a thread of its own.
 */
public final class Train {
    private static final String TOPIC = "trained";
    private static final int TIMEOUT_S = 120;
    // For a broker that starts on a busy machine; the default is a minute.
    private static final String PATIENCE_MS = "200000";

    public static void main(String[] arguments) {
        List<List<String>> programs = new ArrayList<>();
        programs.add(new ArrayList<>());
        for (int i = 2; i < arguments.length; i++) {
            if (arguments[i].equals("--")) {
                programs.add(new ArrayList<>());
            } else {
                programs.get(programs.size() - 1).add(arguments[i]);
            }
        }
        for (List<String> program : programs) {
            Thread thread = new Thread(() -> run(program), program.get(0));
            thread.setDaemon(true);
            thread.start();
        }
        try {
            useClients(arguments[0]);
            try (var files = Files.newDirectoryStream(Path.of(arguments[1], TOPIC + "-0"), "*.log")) {
                for (Path file : files) {
                    dump(file);
                }
            }
        } catch (Exception error) {
            // The broker's threads would keep the JVM.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        // The broker's own hook stops it.
        Runtime.getRuntime().exit(0);
    }

    private static void run(List<String> program) {
        try {
            String[] arguments = program.subList(1, program.size()).toArray(new String[0]);
            Class.forName(program.get(0)).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void useClients(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", PATIENCE_MS))) {
            for (int second = 0; admin.describeCluster().nodes().get().isEmpty() && second < TIMEOUT_S; second++) {
                Thread.sleep(1000);
            }
            admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all().get();
            admin.describeTopics(List.of(TOPIC));
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            produce(bootstrap, Map.of("compression.type", codec, "enable.idempotence", "true"), false);
        }
        produce(bootstrap, Map.of("transactional.id", "t"), true);
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", "g"));
        settings.putAll(Map.of("auto.offset.reset", "earliest", "isolation.level", "read_committed"));
        settings.put("default.api.timeout.ms", PATIENCE_MS);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(TOPIC));
            int count = 0;
            for (int tries = 0; count < 6 && tries < TIMEOUT_S; tries++) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    count += record.value().length > 0 ? 1 : 0;
                }
            }
            consumer.commitSync();
        }
    }

    private static void produce(String bootstrap, Map<String, Object> own, boolean transactional) throws Exception {
        Map<String, Object> settings = new HashMap<>(own);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("max.block.ms", PATIENCE_MS);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            byte[] value = "a value that is long enough to be compressed, compressed, compressed".getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(TOPIC, value, value)).get();
            if (transactional) {
                producer.commitTransaction();
            }
        }
    }

    private static void dump(Path file) {
        for (String name : List.of("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")) {
            try {
                String[] arguments = {"--deep-iteration", "--print-data-log", "--files", file.toString()};
                Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
                return;
            } catch (ClassNotFoundException older) {
                continue;
            } catch (ReflectiveOperationException ended) {
                return;
            }
        }
    }
}
