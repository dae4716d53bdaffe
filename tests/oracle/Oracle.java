import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.OffsetMap;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Delayed;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * Drives the classes of a released Kafka on partition directories, without a broker.
 *
 * <p>Protocol: one JSON object per line on standard input ({"op": ..., parameters}), one JSON object per line on standard
 * output: {"ok": true, ...} or {"ok": false, "error": class, "message": text}. A failed request ends nothing; end of input
 * ends the program. Operations: snapshots, recover, clean, dump. Every directory given is worked on in place, so give a copy.
 */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final int FIVE_MINUTES_MS = 300_000;
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(8);
    private static final BrokerTopicStats TOPIC_STATS = new BrokerTopicStats();

    public static void main(String[] args) throws IOException {
        // Kafka's logging and anything else that prints must not mix with the answers.
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(line)));
            answers.flush();
        }
    }

    private static ObjectNode answer(String line) {
        ObjectNode result = JSON.createObjectNode();
        try {
            JsonNode request = JSON.readTree(line);
            result.put("ok", true);
            switch (request.path("op").asText()) {
                case "ping" -> result.put("java", System.getProperty("java.version"));
                case "snapshots" -> snapshots(request, result);
                case "recover" -> recover(request, result);
                case "clean" -> clean(request, result);
                case "dump" -> dump(request, result);
                default -> throw new IllegalArgumentException("unknown op: " + request.path("op"));
            }
        } catch (Throwable thrown) { // also Errors: an assertion or overflow inside Kafka is this request's answer
            Throwable error = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            result.put("ok", false).put("error", error.getClass().getName()).put("message", String.valueOf(error.getMessage()));
            ArrayNode stack = result.putArray("stack");
            Arrays.stream(error.getStackTrace()).limit(12).forEach(frame -> stack.add(frame.toString()));
        }
        return result;
    }

    // ---------------------------------------------------------------------------------------------- snapshots

    /**
     * Full replay from the first segment; writes out/(E).snapshot at every boundary E above the first base.
     *
     * <p>path "recover": per batch, CRC checked, as LogSegment.recover. path "load": whole segments at a time, unchecked, as
     * UnifiedLog.loadProducersFromRecords does when a broker starts. expire: removeExpiredProducers(now_ms) before each write.
     */
    private static void snapshots(JsonNode request, ObjectNode result) throws Exception {
        File directory = directory(request);
        Path out = Path.of(request.get("out").asText());
        List<Long> bases = bases(directory);
        FixedTime time = new FixedTime(request.get("now_ms").asLong());
        ArrayNode boundaries = result.putArray("boundaries");
        result.putNull("stopped");
        try (TemporaryDirectory empty = new TemporaryDirectory()) {
            ProducerStateManager producers = producerState(directory, empty.file, request, time);
            for (int i = 0; i < bases.size(); i++) {
                producers.updateMapEndOffset(bases.get(i));
                try {
                    replay(producers, directory, bases.get(i), request.path("path").asText("recover"));
                } catch (Throwable error) {
                    Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                    result.putObject("stopped").put("base_offset", bases.get(i)).put("next_offset", producers.mapEndOffset())
                        .put("error", cause.getClass().getName()).put("message", String.valueOf(cause.getMessage()));
                    return;
                }
                long end = i + 1 < bases.size() ? bases.get(i + 1) : Math.max(producers.mapEndOffset(), lastNextOffset(directory, bases.get(i)));
                if (end == bases.get(i)) continue; // an empty last segment: its base was the end of the one before
                producers.updateMapEndOffset(end);
                if (request.path("expire").asBoolean(false)) producers.removeExpiredProducers(time.milliseconds());
                File target = out.resolve(String.format("%020d.snapshot", end)).toFile();
                ProducerStateManager.writeSnapshot(target, producers.activeProducers(), false);
                boundaries.addObject().put("offset", end).put("producers", producers.activeProducers().size())
                    .put("first_unstable_offset", producers.firstUndecidedOffset().orElse(-1L));
            }
        }
    }

    private static void replay(ProducerStateManager producers, File directory, long base, String path) throws Exception {
        try (FileRecords records = FileRecords.open(logFile(directory, base), false)) {
            if (path.equals("load")) {
                Method load = UnifiedLog.class.getDeclaredMethod("loadProducersFromRecords", ProducerStateManager.class, Records.class);
                load.setAccessible(true);
                load.invoke(null, producers, records);
                producers.onHighWatermarkUpdated(Long.MAX_VALUE);
                return;
            }
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                if (batch.hasProducerId()) {
                    ProducerAppendInfo append = producers.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
                    Optional<CompletedTxn> completed = append.append(batch, Optional.empty());
                    producers.update(append);
                    completed.ifPresent(producers::completeTxn);
                }
                producers.updateMapEndOffset(batch.lastOffset() + 1);
            }
            producers.onHighWatermarkUpdated(Long.MAX_VALUE); // forget completed transactions: memory stays flat
        }
    }

    private static long lastNextOffset(File directory, long base) throws IOException {
        long next = base;
        try (FileRecords records = FileRecords.open(logFile(directory, base), false)) {
            for (RecordBatch batch : records.batches()) next = batch.nextOffset();
        }
        return next;
    }

    // ------------------------------------------------------------------------------------------------ recover

    /** LogSegment.recover on every segment in order: indexes and leader-epoch-checkpoint from nothing but the .log files. */
    private static void recover(JsonNode request, ObjectNode result) throws Exception {
        File directory = directory(request);
        FixedTime time = new FixedTime(0);
        LogConfig config = logConfig(request);
        DrainedScheduler scheduler = new DrainedScheduler();
        for (File file : files(directory))
            if (file.getName().matches(".*\\.(index|timeindex|txnindex)|leader-epoch-checkpoint")) Files.delete(file.toPath());
        LeaderEpochFileCache epochs = UnifiedLog.createLeaderEpochCache(directory, topicPartition(directory), FAILURES, Optional.empty(), scheduler);
        ArrayNode segments = result.putArray("segments");
        try (TemporaryDirectory empty = new TemporaryDirectory()) {
            ProducerStateManager producers = producerState(directory, empty.file, request, time);
            for (long base : bases(directory)) {
                LogSegment segment = LogSegment.open(directory, base, config, time, true, 0, false, "");
                try {
                    producers.updateMapEndOffset(base);
                    int truncatedBytes = segment.recover(producers, epochs);
                    producers.onHighWatermarkUpdated(Long.MAX_VALUE);
                    segments.addObject().put("base_offset", base).put("truncated_bytes", truncatedBytes).put("size_bytes", segment.size());
                } finally {
                    segment.close();
                }
            }
        }
        scheduler.drain();
    }

    // -------------------------------------------------------------------------------------------------- clean

    private static void clean(JsonNode request, ObjectNode result) throws Exception {
        File directory = directory(request);
        LogConfig config = logConfig(request);
        FixedTime time = new FixedTime(request.path("load_now_ms").asLong(0));
        DrainedScheduler scheduler = new DrainedScheduler();
        boolean trusted = request.path("trust_snapshots").asBoolean(false);
        if (!trusted)
            for (File file : files(directory)) if (file.getName().endsWith(".snapshot")) Files.delete(file.toPath());
        UnifiedLog log = UnifiedLog.create(directory, config, request.path("log_start_offset").asLong(0), request.path("recovery_point").asLong(0),
            scheduler, TOPIC_STATS, time, FIVE_MINUTES_MS, producerStateConfig(request), FIVE_MINUTES_MS, FAILURES,
            request.path("clean_shutdown").asBoolean(false), Optional.empty());
        try {
            log.updateHighWatermark(request.path("high_watermark").asLong(log.logEndOffset()));
            rounds(log, request, time, scheduler, result);
        } finally {
            log.close();
            scheduler.drain();
            log.removeLogMetrics();
        }
    }

    private static void rounds(UnifiedLog log, JsonNode request, FixedTime time, DrainedScheduler scheduler, ObjectNode result) throws Exception {
        result.put("log_start_offset", log.logStartOffset()).put("log_end_offset", log.logEndOffset())
            .put("last_stable_offset", log.lastStableOffset()).put("active_base_offset", log.activeSegment().baseOffset());
        OffsetMap map = offsetMap(log, request);
        int ioBufferBytes = request.path("io_buffer_bytes").asInt(256 * 1024);
        int maxMessageBytes = request.path("max_io_buffer_bytes").asInt(1024 * 1024 + 12);
        Throttler unthrottled = new Throttler(Double.MAX_VALUE, 300, "oracle", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, map, ioBufferBytes, maxMessageBytes, request.path("load_factor").asDouble(0.9), unthrottled, time, partition -> { });
        Optional<Long> checkpoint = request.hasNonNull("first_dirty_offset") ? Optional.of(request.get("first_dirty_offset").asLong()) : Optional.empty();
        ArrayNode rounds = result.putArray("rounds");
        for (JsonNode round : request.get("rounds")) {
            time.set(round.get("now_ms").asLong());
            if (request.path("expire").asBoolean(true)) log.removeExpiredProducers(time.milliseconds());
            LogToClean cleanable = cleanable(log, round, checkpoint, time.milliseconds());
            ObjectNode answer = rounds.addObject().put("first_dirty_offset", cleanable.firstDirtyOffset())
                .put("first_uncleanable_offset", cleanable.firstUncleanableOffset()).put("clean_bytes", cleanable.cleanBytes())
                .put("cleanable_bytes", cleanable.cleanableBytes());
            // Kafka's manager never picks a log without cleanable bytes; with "plain" the caller asks for it on purpose.
            boolean cleaned = cleanable.cleanableBytes() > 0 || (map instanceof PlainOffsetMap && cleanable.cleanBytes() > 0);
            answer.put("cleaned", cleaned);
            if (!cleaned) {
                checkpoint = Optional.of(cleanable.firstDirtyOffset());
                answer.put("end_offset", cleanable.firstDirtyOffset());
                continue;
            }
            if (map instanceof PlainOffsetMap plain) plain.startOffset = cleanable.firstDirtyOffset();
            Map.Entry<Long, CleanerStats> done = cleaner.clean(cleanable);
            scheduler.drain();
            if (request.path("map_slots").asInt(0) == 0 && done.getKey() < cleanable.firstUncleanableOffset())
                throw new IllegalStateException("the unlimited offset map was too small: ended at " + done.getKey());
            checkpoint = Optional.of(done.getKey());
            CleanerStats stats = done.getValue();
            answer.put("end_offset", done.getKey()).put("bytes_read", stats.bytesRead()).put("bytes_written", stats.bytesWritten())
                .put("messages_read", stats.messagesRead()).put("messages_written", stats.messagesWritten())
                .put("invalid_messages", stats.invalidMessagesRead()).put("map_messages_read", stats.mapMessagesRead());
        }
    }

    /** The range of a round: as LogCleanerManager computes it, or with the upper offset that the round names. */
    private static LogToClean cleanable(UnifiedLog log, JsonNode round, Optional<Long> checkpoint, long nowMs) throws Exception {
        Method offsets = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        offsets.setAccessible(true);
        Object range = offsets.invoke(null, log, checkpoint, nowMs);
        long firstDirty = component(range, "firstDirtyOffset");
        long firstUncleanable = component(range, "firstUncleanableDirtyOffset");
        if (round.hasNonNull("first_uncleanable_offset")) {
            long asked = round.get("first_uncleanable_offset").asLong();
            if (asked > firstUncleanable) throw new IllegalArgumentException("asked to clean up to " + asked + ", Kafka stops at " + firstUncleanable);
            firstUncleanable = Math.max(firstDirty, asked);
        }
        return new LogToClean(log, firstDirty, firstUncleanable, false);
    }

    private static long component(Object range, String name) throws Exception {
        Method accessor = range.getClass().getDeclaredMethod(name);
        accessor.setAccessible(true);
        return (long) accessor.invoke(range);
    }

    private static OffsetMap offsetMap(UnifiedLog log, JsonNode request) throws Exception {
        if (request.path("map").asText("skimpy").equals("plain")) return new PlainOffsetMap();
        int slots = request.path("map_slots").asInt(0);
        if (slots == 0) slots = (int) Math.min(1 << 22, Math.max(64, 2 * (log.logEndOffset() - log.logStartOffset())));
        return new SkimpyOffsetMap(slots * 24, "MD5");
    }

    /**
     * A map without collisions and without limit. Unlike SkimpyOffsetMap a round over an empty dirty range starts with
     * latestOffset = firstDirty - 1 (SkimpyOffsetMap: -1), so the clean section is rewritten and its delete horizons move on.
     */
    private static final class PlainOffsetMap implements OffsetMap {
        private final Map<ByteBuffer, Long> offsets = new HashMap<>();
        private long latestOffset = -1;
        private long startOffset;

        public int slots() { return Integer.MAX_VALUE; }

        public void put(ByteBuffer key, long offset) {
            offsets.put(ByteBuffer.wrap(bytes(key)), offset);
            latestOffset = offset;
        }

        public long get(ByteBuffer key) { return offsets.getOrDefault(key.duplicate(), -1L); }

        public void updateLatestOffset(long offset) { latestOffset = offset; }

        public void clear() {
            offsets.clear();
            latestOffset = startOffset - 1;
        }

        public int size() { return offsets.size(); }

        public long latestOffset() { return latestOffset; }
    }

    // --------------------------------------------------------------------------------------------------- dump

    /** Tab-separated rows of one file by Kafka's own readers: .log (level batch or record) and .snapshot. */
    private static void dump(JsonNode request, ObjectNode result) throws IOException {
        File file = new File(request.get("file").asText());
        long rows = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(request.get("out").asText()))) {
            if (file.getName().endsWith(".snapshot")) {
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                    row(out, entry.producerId(), entry.producerEpoch(), lastSequence(entry), entry.lastDataOffset(), offsetDelta(entry),
                        entry.lastTimestamp(), entry.coordinatorEpoch(), entry.currentTxnFirstOffset().orElse(-1L));
                    rows++;
                }
            } else if (request.path("level").asText("batch").equals("batch")) {
                rows = dumpBatches(file, out);
            } else {
                rows = dumpRecords(file, out);
            }
        }
        result.put("rows", rows);
    }

    private static int lastSequence(ProducerStateEntry entry) {
        return entry.batchMetadata().stream().reduce((first, second) -> second).map(batch -> batch.lastSeq()).orElse(-1);
    }

    private static int offsetDelta(ProducerStateEntry entry) {
        return entry.batchMetadata().stream().reduce((first, second) -> second).map(batch -> batch.offsetDelta()).orElse(0);
    }

    private static long dumpBatches(File file, BufferedWriter out) throws IOException {
        long rows = 0;
        try (FileRecords records = FileRecords.open(file, false)) {
            for (FileChannelRecordBatch batch : records.batches()) {
                row(out, batch.position(), batch.sizeInBytes(), batch.baseOffset(), batch.lastOffset(), batch.magic(),
                    batch.compressionType().id, batch.timestampType().id, batch.isTransactional(), batch.isControlBatch(),
                    batch.deleteHorizonMs().orElse(-1L), batch.partitionLeaderEpoch(), batch.isValid() ? 1 : 0, batch.maxTimestamp(),
                    batch.producerId(), batch.producerEpoch(), batch.baseSequence(), batch.lastSequence(),
                    batch.countOrNull() == null ? -1 : batch.countOrNull());
                rows++;
            }
        }
        return rows;
    }

    private static long dumpRecords(File file, BufferedWriter out) throws IOException {
        long rows = 0;
        BufferSupplier buffers = BufferSupplier.create();
        try (FileRecords records = FileRecords.open(file, false)) {
            for (FileChannelRecordBatch batch : records.batches()) {
                try (CloseableIterator<Record> inner = batch.streamingIterator(buffers)) {
                    while (inner.hasNext()) {
                        Record record = inner.next();
                        row(out, batch.position(), record.offset(), record.timestamp(), record.sequence(), record.hasKey() ? hex(record.key()) : "-",
                            record.hasValue() ? hex(record.value()) : "-", headers(record));
                        rows++;
                    }
                }
            }
        } finally {
            buffers.close();
        }
        return rows;
    }

    private static String headers(Record record) {
        List<String> parts = new ArrayList<>();
        for (Header header : record.headers()) {
            String value = header.value() == null ? "-" : HEX.formatHex(header.value());
            parts.add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + value);
        }
        return String.join(",", parts);
    }

    private static void row(BufferedWriter out, Object... cells) throws IOException {
        for (int i = 0; i < cells.length; i++) {
            if (i > 0) out.write('\t');
            Object cell = cells[i];
            out.write(cell instanceof Boolean flag ? (flag ? "1" : "0") : String.valueOf(cell));
        }
        out.write('\n');
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static String hex(ByteBuffer buffer) { return HEX.formatHex(bytes(buffer)); }

    // ------------------------------------------------------------------------------------------- surroundings

    private static File directory(JsonNode request) throws IOException {
        File directory = new File(request.get("directory").asText());
        if (!directory.isDirectory()) throw new IOException("not a directory: " + directory);
        return directory;
    }

    private static TopicPartition topicPartition(File directory) throws IOException { return UnifiedLog.parseTopicPartitionName(directory); }

    private static File[] files(File directory) throws IOException {
        File[] found = directory.listFiles(File::isFile);
        if (found == null) throw new IOException("cannot list " + directory);
        return found;
    }

    private static List<Long> bases(File directory) throws IOException {
        return Arrays.stream(files(directory)).filter(file -> file.getName().matches("\\d{20}\\.log"))
            .map(UnifiedLog::offsetFromFile).sorted().toList();
    }

    private static File logFile(File directory, long base) { return new File(directory, String.format("%020d.log", base)); }

    private static ProducerStateManagerConfig producerStateConfig(JsonNode request) {
        return new ProducerStateManagerConfig(request.path("producer_id_expiration_ms").asInt(Integer.MAX_VALUE), false);
    }

    private static ProducerStateManager producerState(File directory, File snapshotDirectory, JsonNode request, Time time) throws IOException {
        return new ProducerStateManager(topicPartition(directory), snapshotDirectory, FIVE_MINUTES_MS, producerStateConfig(request), time);
    }

    private static LogConfig logConfig(JsonNode request) {
        Map<String, String> properties = new HashMap<>();
        for (Map.Entry<String, JsonNode> entry : request.path("config").properties()) properties.put(entry.getKey(), entry.getValue().asText());
        // 4.x refuses small segments under the public name; the internal one has no lower limit.
        String segmentBytes = properties.remove("segment.bytes");
        if (segmentBytes != null)
            properties.put(Integer.parseInt(segmentBytes) < 1024 * 1024 ? "internal.segment.bytes" : "segment.bytes", segmentBytes);
        return new LogConfig(properties);
    }

    private static final class TemporaryDirectory implements AutoCloseable {
        private final File file = Files.createTempDirectory("oracle").toFile();

        private TemporaryDirectory() throws IOException { }

        @Override
        public void close() throws IOException {
            try (Stream<Path> inside = Files.list(file.toPath())) {
                for (Path path : inside.toList()) Files.delete(path);
            }
            Files.delete(file.toPath());
        }
    }

    /** A clock that stands still until it is set. */
    private static final class FixedTime implements Time {
        private volatile long nowMs;

        private FixedTime(long nowMs) { this.nowMs = nowMs; }

        private void set(long value) { nowMs = value; }

        @Override
        public long milliseconds() { return nowMs; }

        @Override
        public long nanoseconds() { return nowMs * 1_000_000; }

        @Override
        public void sleep(long ms) { nowMs += ms; }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            if (!condition.get()) throw new UnsupportedOperationException("nothing waits here");
        }
    }

    /** Keeps one-off tasks (deletion of replaced files, flushes) until drain(); periodic ones never run. */
    private static final class DrainedScheduler implements Scheduler {
        private final Deque<Task> tasks = new ArrayDeque<>();

        @Override
        public void startup() { }

        @Override
        public void shutdown() { drain(); }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            Task scheduled = new Task(task);
            if (periodMs < 0) tasks.add(scheduled);
            return scheduled;
        }

        @Override
        public void resizeThreadPool(int size) { }

        private void drain() {
            for (Task task = tasks.poll(); task != null; task = tasks.poll()) task.runOrThrow();
        }
    }

    private static final class Task extends FutureTask<Void> implements ScheduledFuture<Void> {
        private Task(Runnable task) { super(task, null); }

        private void runOrThrow() {
            run();
            try {
                get();
            } catch (ExecutionException | InterruptedException error) {
                throw new IllegalStateException("a scheduled task of Kafka failed", error);
            }
        }

        @Override
        public long getDelay(TimeUnit unit) { return 0; }

        @Override
        public int compareTo(Delayed other) { return 0; }
    }
}
