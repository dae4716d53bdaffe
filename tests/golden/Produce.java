import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java producer, driven by a script: {@code Produce <bootstrap> <script> <first record number>}.
 *
 * <pre>
 * producer NAME [setting=value ...]      a new producer; with transactional.id it is initialised at once
 * begin|commit|abort|close NAME
 * add NAME TOPIC PARTITION               the partition joins the transaction, no record is sent
 * send NAME TOPIC PARTITION COUNT [keys=N] [tombstones=N] [headers=1] [bytes=N] [disorder=1]
 *                                        keys=0: null keys; tombstones=N: every N-th value is null
 * </pre>
 *
 * Prints the next record number and ends without closing its producers.
 */
public final class Produce {
    private static final String[] WORDS = {"amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron"};
    private static final long STEP_MS = 7;

    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final String bootstrap;
    private final Random random;
    private final long baseMs = System.currentTimeMillis() - 60_000;
    private int sent;
    private int number;

    private Produce(String bootstrap, int number) {
        this.bootstrap = bootstrap;
        this.number = number;
        this.random = new Random(number);
    }

    public static void main(String[] arguments) throws Exception {
        Produce session = new Produce(arguments[0], Integer.parseInt(arguments[2]));
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            if (!line.isBlank()) {
                session.run(line.trim().split("\\s+"));
            }
        }
        System.out.println(session.number);
        System.out.flush();
        // Every script ends here without close(): flushed records are acknowledged, open transactions must stay open.
        Runtime.getRuntime().halt(0);
    }

    private void run(String[] words) throws Exception {
        KafkaProducer<byte[], byte[]> producer = words.length > 1 ? producers.get(words[1]) : null;
        switch (words[0]) {
            case "producer" -> open(words);
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close();
            case "add" -> add(producer, new TopicPartition(words[2], Integer.parseInt(words[3])));
            case "send" -> send(producer, words);
            default -> throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    private void open(String[] words) {
        Map<String, Object> settings = new HashMap<>(options(words, 2));
        settings.put("bootstrap.servers", bootstrap);
        settings.putIfAbsent("enable.idempotence", "true");
        settings.putIfAbsent("acks", "all");
        settings.putIfAbsent("linger.ms", "50");
        settings.putIfAbsent("batch.size", "2000");
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (settings.containsKey("transactional.id")) {
            producer.initTransactions();
        }
        producers.put(words[1], producer);
    }

    /** There is no public way to commit a transaction that touched a partition but wrote nothing to it. */
    private static void add(KafkaProducer<byte[], byte[]> producer, TopicPartition partition) throws Exception {
        Field field = KafkaProducer.class.getDeclaredField("transactionManager");
        field.setAccessible(true);
        Object manager = field.get(producer);
        for (Method method : manager.getClass().getMethods()) {
            if (method.getName().matches("maybeAddPartition(ToTransaction)?")) {
                method.invoke(manager, partition);
                return;
            }
        }
        throw new IllegalStateException("this client's TransactionManager cannot add a partition");
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String[] words) throws Exception {
        Map<String, String> options = options(words, 5);
        int keys = Integer.parseInt(options.getOrDefault("keys", "50"));
        int tombstones = Integer.parseInt(options.getOrDefault("tombstones", "0"));
        int bytes = Integer.parseInt(options.getOrDefault("bytes", "120"));
        List<Future<?>> acknowledgements = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            byte[] key = keys == 0 ? null : utf8("key-" + random.nextInt(keys));
            byte[] value = tombstones > 0 && i % tombstones == tombstones - 1 ? null : utf8(text(bytes));
            long timestampMs = baseMs + STEP_MS * sent - (options.containsKey("disorder") ? random.nextInt(900) : 0);
            List<Header> headers = options.containsKey("headers") ? headers(i) : List.of();
            acknowledgements.add(producer.send(
                    new ProducerRecord<>(words[2], Integer.parseInt(words[3]), timestampMs, key, value, headers)));
            sent++;
            number++;
        }
        producer.flush();
        for (Future<?> acknowledgement : acknowledgements) {
            acknowledgement.get();
        }
    }

    private String text(int bytes) {
        StringBuilder text = new StringBuilder("record-" + number);
        while (text.length() < bytes) {
            text.append(' ').append(WORDS[random.nextInt(WORDS.length)]);
        }
        return text.toString();
    }

    private static List<Header> headers(int i) {
        Header trace = new RecordHeader("trace", utf8("trace-" + i));
        return switch (i % 5) {
            case 0 -> List.of(trace);
            case 1 -> List.of(trace, new RecordHeader("trace", utf8("again")), new RecordHeader("trace", utf8("")));
            case 2 -> List.of(new RecordHeader("absent", (byte[]) null));
            case 3 -> List.of(new RecordHeader("", new byte[] {0, (byte) 0xff}), new RecordHeader("größe", utf8("ß")));
            default -> List.of();
        };
    }

    private static Map<String, String> options(String[] words, int from) {
        Map<String, String> options = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        return options;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
