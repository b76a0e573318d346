package dev.esker.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.MockProcessorContext;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Applications give with Esker what they give with the stores of Kafka Streams. */
class StoresTest {
    private static final long MINUTE = 60_000;

    @TempDir
    Path directory;

    private static Bytes b(String text) {
        return Bytes.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Each kind of store: tables, windows, duplicates, sessions, results at the end of a window. */
    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> strings = Consumed.with(Serdes.String(), Serdes.String());
        KStream<String, String> left = builder.stream("left", strings);
        KStream<String, String> right = builder.stream("right", strings);
        KGroupedStream<String, String> grouped =
                left.groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
        Duration grace = Duration.ofMinutes(2);
        TimeWindows windows = TimeWindows.ofSizeAndGrace(Duration.ofMinutes(3), grace)
                .advanceBy(Duration.ofMinutes(1));
        List<KStream<String, String>> results = List.of(
                grouped.reduce((a, v) -> (a + v).substring(Math.max(0, a.length() - 20))).toStream(),
                grouped.windowedBy(windows).count().toStream().map(StoresTest::text),
                grouped.windowedBy(windows).emitStrategy(EmitStrategy.onWindowClose())
                        .count().toStream().map(StoresTest::text),
                grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(1), grace))
                        .count().toStream().map(StoresTest::text),
                grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(40), grace))
                        .count().toStream().map(StoresTest::text),
                grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(40), grace))
                        .emitStrategy(EmitStrategy.onWindowClose()).count().toStream().map(StoresTest::text),
                left.outerJoin(right, (a, c) -> a + "+" + c,
                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(30), grace),
                        StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String())),
                left.toTable().join(right.toTable(), (a, c) -> a + "&" + c).toStream());
        for (int i = 0; i < results.size(); i++) {
            results.get(i).to("out" + i, org.apache.kafka.streams.kstream.Produced.with(
                    Serdes.String(), Serdes.String()));
        }
        return builder.build();
    }

    private static KeyValue<String, String> text(Windowed<String> window, Object value) {
        return KeyValue.pair(window.toString(), String.valueOf(value));
    }

    private List<String> run(Class<?> suppliers, String format, long cache) throws Exception {
        Properties options = new Properties();
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:9092");
        options.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory(directory, "state").toString());
        options.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        options.put(StreamsConfig.DSL_STORE_FORMAT_CONFIG, format);
        options.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, cache);
        options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        options.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        options.put(EskerDslStoreSuppliers.MEMORY_BYTES, 4 << 20);
        List<String> results = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), options, Instant.EPOCH)) {
            List<TestInputTopic<String, String>> inputs = Stream.of("left", "right").map(name ->
                    driver.createInputTopic(name, new StringSerializer(), new StringSerializer())).toList();
            Random random = new Random(5);
            String[] keys = {"a", "ab", "abc", "b", "z"};
            for (int i = 0; i < 300; i++) {
                // Times go on, with some that are late and some that are too late.
                int late = random.nextInt(random.nextInt(20) == 0 ? 600_000 : 30_000);
                long time = Math.max(0, 5_000L * i - late);
                inputs.get(random.nextInt(2)).pipeInput(keys[random.nextInt(keys.length)], "v" + i, time);
            }
            driver.advanceWallClockTime(Duration.ofHours(1));
            for (int i = 0; i < 8; i++) {
                Stream<String> records = driver
                        .createOutputTopic("out" + i, new StringDeserializer(), new StringDeserializer())
                        .readRecordsToList().stream().map(Object::toString);
                // Windows and sessions that end in the same step have no order.
                results.addAll((i == 2 || i == 5 ? records.sorted() : records).toList());
            }
            driver.getAllStateStores().values().forEach(store -> assertTrue(store == null || store.isOpen()));
        }
        return results;
    }

    @ParameterizedTest
    @CsvSource({"default, 0", "default, 10000000", "headers, 0"})
    void applicationsGiveTheSameResults(String format, long cache) throws Exception {
        List<String> expected = run(BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class, format, cache);
        List<String> results = run(EskerDslStoreSuppliers.class, format, cache);
        assertTrue(results.size() > 300, "only " + results.size());
        for (int i = 0; i < Math.min(results.size(), expected.size()); i++) {
            assertEquals(expected.get(i), results.get(i), "result " + i);
        }
        assertEquals(expected.size(), results.size());
    }

    private <S extends StateStore> S open(S store) {
        MockProcessorContext<String, String> context = new MockProcessorContext<>(
                new Properties(), new org.apache.kafka.streams.processor.TaskId(0, 0), directory.toFile());
        store.init(context.getStateStoreContext(), store);
        return store;
    }

    private static <K> List<K> keys(KeyValueIterator<K, byte[]> walk) {
        List<K> keys = new ArrayList<>();
        try (walk) {
            while (walk.hasNext()) {
                K next = walk.peekNextKey();
                assertEquals(next, walk.next().key);
                keys.add(next);
            }
        }
        return keys;
    }

    @Test
    void keysAndValuesStayAfterACommit() {
        Supplier<EskerKeyValueStore> make = () -> open(new EskerKeyValueStore("kv", 4 << 20));
        EskerKeyValueStore store = make.get();
        byte[] value = {1};
        store.putAll(List.of(KeyValue.pair(b("a"), value), KeyValue.pair(b("b"), value)));
        assertNull(store.putIfAbsent(b("c"), value));
        assertArrayEquals(value, store.putIfAbsent(b("c"), new byte[0]));
        assertArrayEquals(value, store.delete(b("b")));
        store.commit(Map.of());
        store.close();
        assertFalse(store.isOpen());
        assertThrows(InvalidStateStoreException.class, () -> store.get(b("a")));
        EskerKeyValueStore again = make.get();
        assertEquals(2, again.approximateNumEntries());
        assertEquals(List.of(b("a"), b("c")), keys(again.range(b("a"), b("c"))));
        assertEquals(List.of(b("c")), keys(again.prefixScan("c", new StringSerializer())));
        assertEquals(List.of(), keys(again.range(b("c"), b("a"))));
        again.close();
    }

    @Test
    void windowsEndAfterTheirTime() {
        EskerTimeStore.Times times = new EskerTimeStore.Times(10 * MINUTE, 5 * MINUTE);
        Supplier<EskerWindowStore> make =
                () -> open(new EskerWindowStore("w", 4 << 20, times, MINUTE, false));
        EskerWindowStore store = make.get();
        for (long minute = 0; minute < 100; minute++) {
            store.put(b("k"), new byte[] {(byte) minute}, minute * MINUTE);
            store.put(b("k\0"), new byte[] {(byte) minute}, minute * MINUTE);
        }
        assertNull(store.fetch(b("k"), 10 * MINUTE));
        assertArrayEquals(new byte[] {99}, store.fetch(b("k"), 99 * MINUTE));
        assertEquals(List.of(96 * MINUTE, 97 * MINUTE), keys(store.fetch(b("k"), 96 * MINUTE, 97 * MINUTE)));
        assertEquals(10, keys(store.backwardFetch(b("k"), 0, Long.MAX_VALUE)).size());
        assertEquals(20, keys(store.all()).size());
        assertTrue(store.entries().size() < 32);
        store.commit(Map.of());
        store.close();
        EskerWindowStore again = make.get();
        assertTrue(keys(again.fetch(b("k"), b("k"), 0, Long.MAX_VALUE)).size() >= 10);
        again.put(b("k"), null, 99 * MINUTE);
        assertNull(again.fetch(b("k"), 99 * MINUTE));
        again.close();
    }

    @Test
    void sessionsAreFoundByTheirTimes() {
        EskerTimeStore.Times times = new EskerTimeStore.Times(10 * MINUTE, 5 * MINUTE);
        EskerSessionStore store = open(new EskerSessionStore("s", 4 << 20, times));
        for (long minute = 0; minute < 20; minute += 2) {
            SessionWindow window = new SessionWindow(minute * MINUTE, (minute + 1) * MINUTE);
            store.put(new Windowed<>(b("k"), window), new byte[] {(byte) minute});
        }
        assertArrayEquals(new byte[] {18}, store.fetchSession(b("k"), 18 * MINUTE, 19 * MINUTE));
        assertEquals(2, keys(store.findSessions(b("k"), 15 * MINUTE, 16 * MINUTE)).size());
        assertEquals(5, keys(store.fetch(b("k"))).size());
        store.remove(new Windowed<>(b("k"), new SessionWindow(18 * MINUTE, 19 * MINUTE)));
        assertEquals(4, keys(store.backwardFetch(b("k"))).size());
        store.close();
    }
}
