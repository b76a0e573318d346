package dev.esker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Each part of the interface, together with the others. */
class EskerTest {
    @TempDir
    Path directory;
    private Esker db;
    private Keyspace users;

    static byte[] b(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String s(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    @BeforeEach
    void open() {
        db = Esker.options().feed(64 << 20, Duration.ofHours(1)).open(directory.resolve("db"));
        users = db.keyspace("users");
    }

    @AfterEach
    void close() {
        db.close();
    }

    private void put(String... keys) {
        for (String key : keys) {
            users.put(b(key), b("v" + key));
        }
    }

    private static List<String> keys(Scan<Entry> scan) {
        return scan.keys().stream().map(EskerTest::s).toList();
    }

    @Test
    void readsAndWrites() {
        assertNull(users.get(b("a")));
        users.put(b("a"), b("1"));
        users.put(b("empty"), new byte[0]);
        users.put(new byte[0], b("of the empty key"));
        assertEquals("1", s(users.get(b("a"))));
        assertArrayEquals(new byte[0], users.get(b("empty")));
        assertEquals(3, users.size());
        assertEquals(List.of("1", "null"), users.getAll(List.of(b("a"), b("x"))).stream()
                .map(v -> String.valueOf(s(v))).toList());
        assertTrue(users.containsKey(new byte[0]) && !users.containsKey(b("x")));
        assertEquals("1", s(users.remove(b("a"))));
        assertNull(users.remove(b("a")));
        users.delete(new byte[0]);
        assertEquals(1, users.size());
        assertEquals(0, users.getAndAdd(b("n"), 5));
        assertEquals(5, users.getAndAdd(b("n"), -7));
    }

    @Test
    void largeValuesAndKeysComeBack() {
        byte[] value = new byte[5 << 20];
        Arrays.fill(value, (byte) 7);
        byte[] key = new byte[65_535];
        users.put(key, value);
        assertArrayEquals(value, users.get(key));
        assertArrayEquals(value, users.all().toList().getFirst().value());
        var tooLong = assertThrows(InvalidException.class, () -> users.put(new byte[65_536], value));
        assertEquals(Status.TOO_LONG, tooLong.status());
        assertArrayEquals(value, users.remove(key));
    }

    @Test
    void compareAndSwapCreatesReplacesAndRemoves() {
        assertTrue(users.compareAndSwap(b("k"), null, b("1")));
        assertFalse(users.compareAndSwap(b("k"), null, b("2")));
        assertFalse(users.compareAndSwap(b("k"), b("0"), b("2")));
        assertTrue(users.compareAndSwap(b("k"), b("1"), new byte[0]));
        assertTrue(users.compareAndSwap(b("k"), new byte[0], null));
        assertEquals(0, users.size());
    }

    @Test
    void lifetimesEndAlsoInTransactionsAndSnapshots() throws InterruptedException {
        users.put(b("a"), b("1"), Duration.ofMillis(200));
        users.put(b("b"), b("1"));
        assertTrue(users.ttl(b("a")).orElseThrow().toMillis() <= 200);
        assertTrue(users.ttl(b("b")).isEmpty() && users.ttl(b("x")).isEmpty());
        db.transact(t -> t.keyspace(users).put(b("c"), b("1"), Duration.ofMillis(200)));
        users.put(b("d"), b("1"));
        assertTrue(users.expire(b("d"), Duration.ofHours(1)) && users.ttl(b("d")).isPresent());
        assertTrue(users.persist(b("d")) && users.ttl(b("d")).isEmpty());
        assertFalse(users.expire(b("x"), Duration.ZERO) || users.persist(b("x")));
        assertThrows(InvalidException.class, () -> users.expire(b("d"), Duration.ofMillis(-1)));
        db.transact(t -> {
            ReadsWrites view = t.keyspace(users);
            assertTrue(view.expire(b("d"), Duration.ZERO));
            assertFalse(view.containsKey(b("d")) || view.persist(b("d")));
            assertTrue(users.containsKey(b("d")));
        });
        assertFalse(users.containsKey(b("d")));
        Thread.sleep(300);
        assertEquals(List.of("b"), keys(users.all()));
        assertEquals(1, users.size());
        try (Snapshot snapshot = db.snapshot()) {
            assertEquals(1, snapshot.keyspace(users).size());
        }
        assertThrows(InvalidException.class, () -> users.put(b("a"), b("1"), Duration.ofMillis(-1)));
    }

    @Test
    void mergeFoldsOperands() {
        Keyspace sums = db.keyspace("sums");
        assertThrows(MergeException.class, () -> sums.merge(b("k"), b("x")));
        sums.setMergeOperator("append");
        sums.merge(b("k"), b("x"));
        db.transact(t -> t.keyspace(sums).merge(b("k"), b("y")));
        assertEquals("xy", s(sums.get(b("k"))));
        db.compact();
        assertEquals("xy", s(sums.get(b("k"))));
    }

    @Test
    void scansGoBothWaysInRangesAndPrefixes() {
        put("a", "b1", "b2", "b3", "c");
        assertEquals(List.of("a", "b1", "b2", "b3", "c"), keys(users.all()));
        assertEquals(List.of("b1", "b2"), keys(users.range(b("b"), b("b3"))));
        assertEquals(List.of("b3", "b2"), keys(users.prefix(b("b")).reversed().limit(2)));
        assertEquals(List.of("c", "b3"), keys(users.range(b("b3"), null).reversed()));
        assertEquals("vb1", s(users.prefix(b("b")).stream().findFirst().orElseThrow().value()));
        assertEquals(3, users.prefix(b("b")).count());
        List<String> seen = new ArrayList<>();
        try (Scan<Entry> scan = users.all()) {
            for (Entry entry : scan) {
                users.deleteRange(null, null); // The walk sees the state when it began.
                seen.add(entry.toString());
                if (seen.size() == 2) {
                    break;
                }
            }
        }
        assertEquals(List.of("a=va", "b1=vb1"), seen);
        assertEquals(0, users.size());
    }

    @Test
    void longScansComeInChunks() {
        try (Batch batch = db.batch()) {
            for (int i = 0; i < 100_000; i++) {
                batch.put(users, Tuple.of(i).pack(), new byte[i % 50]);
            }
            batch.keyspace(users).put(Tuple.of(50_000).pack(), new byte[1 << 20]);
            batch.commit();
        }
        long expected = 0;
        try (ScanIterator<Entry> walk = users.all().iterator()) {
            while (walk.hasNext()) {
                Entry entry = walk.next();
                assertEquals(expected, Tuple.unpack(entry.key()).getLong(0));
                assertEquals(expected == 50_000 ? 1 << 20 : expected % 50, entry.value().length);
                expected++;
            }
        }
        assertEquals(100_000, expected);
        long[] sizes = new long[2];
        users.range(Tuple.of(10).pack(), Tuple.of(60_000).pack()).visit((key, value) -> {
            sizes[0]++;
            sizes[1] += value.byteSize();
            return true;
        });
        assertEquals(59_990, sizes[0]);
        assertTrue(sizes[1] > 1 << 20);
        assertEquals(7, users.all().limit(7).toList().size());
    }

    @Test
    void segmentsAreLentAndEndWithTheirOwner() {
        users.put(b("k"), b("value"));
        MemorySegment kept;
        try (LentValue lent = users.lend(b("k"))) {
            kept = lent.segment();
            assertEquals((byte) 'v', kept.get(ValueLayout.JAVA_BYTE, 0));
            users.deleteRange(null, null);
            db.compact();
            assertEquals("value", s(lent.toBytes()));
        }
        assertThrows(IllegalStateException.class, () -> kept.get(ValueLayout.JAVA_BYTE, 0));
        assertNull(users.lend(b("k")));
        for (Arena arena : List.of(Arena.ofConfined(), Arena.ofShared(), Arena.global(), Arena.ofAuto())) {
            MemorySegment key = arena.allocateFrom("key", StandardCharsets.UTF_8).asSlice(0, 3);
            users.put(key, key);
            assertEquals("key", s(users.remove(b("key"))));
        }
        MemorySegment[] escaped = new MemorySegment[1];
        put("a");
        users.all().visit((key, value) -> (escaped[0] = key) != null);
        assertThrows(IllegalStateException.class, () -> escaped[0].get(ValueLayout.JAVA_BYTE, 0));
        Arena closed = Arena.ofConfined();
        MemorySegment gone = closed.allocate(8);
        closed.close();
        assertThrows(IllegalStateException.class, () -> users.put(gone, gone));
    }

    @Test
    void transactionsCommitRollBackAndReturnToSavepoints() {
        try (Transaction t = db.beginTransaction()) {
            t.put(users, b("a"), b("1"));
            Transaction.Savepoint point = t.savepoint();
            t.put(users, b("b"), b("1"));
            t.keyspace(users).deletePrefix(b("a"));
            assertEquals(List.of("b"), keys(t.range(users, null, null)));
            t.rollbackTo(point);
            assertEquals(1, t.keyspace(users).size());
            t.commit();
            assertThrows(ClosedException.class, () -> t.put(users, b("c"), b("1")));
        }
        try (Transaction t = db.beginTransaction(Isolation.EXCLUSIVE)) {
            t.delete(users, b("a"));
        }
        assertEquals(List.of("a"), keys(users.all()));
        assertThrows(IOException.class, () -> db.transact(t -> {
            t.put(users, b("x"), b("1"));
            throw new IOException("rolls back");
        }));
        assertEquals(1, users.size());
    }

    @Test
    void aConflictIsThrownOrTheTransactionRunsAgain() throws InterruptedException {
        put("n");
        try (Transaction a = db.beginTransaction()) {
            a.put(users, b("m"), a.get(users, b("n")));
            users.put(b("n"), b("other"));
            assertThrows(ConflictException.class, a::commit);
        }
        users.deleteRange(null, null);
        List<Thread> threads = Stream.generate(() -> new Thread(() -> {
            for (int i = 0; i < 50; i++) {
                db.transact(t -> {
                    byte[] old = t.get(users, b("n"));
                    long n = old == null ? 0 : Long.parseLong(s(old));
                    t.put(users, b("n"), b(Long.toString(n + 1)));
                });
            }
        })).limit(4).toList();
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals("200", s(users.get(b("n"))));
        assertEquals("200!", db.transactResult(t -> s(t.get(users, b("n"))) + "!"));
    }

    @Test
    void snapshotsStayAsTheyAre() {
        put("a", "b");
        try (Snapshot snapshot = db.snapshot()) {
            users.deleteRange(b("a"), b("b"));
            users.put(b("c"), b("1"));
            assertEquals(List.of("a", "b"), keys(snapshot.keyspace(users).all()));
            assertEquals("va", s(snapshot.get(users, b("a"))));
        }
        assertEquals(List.of("b", "c"), keys(users.all()));
    }

    @Test
    void theFeedHasEachCommit() {
        long mark = db.newestCommit();
        db.transact(t -> {
            t.put(users, b("a"), b("1"));
            t.delete(users, b("b"));
        });
        users.deleteRange(b("a"), null);
        Instant before = Instant.now().truncatedTo(ChronoUnit.MILLIS);
        users.setMergeOperator("append");
        users.setDefaultTtl(Duration.ofHours(1));
        users.merge(b("m"), b("1"));
        try (Feed feed = db.feed(mark)) {
            assertTrue(feed.next(Duration.ofSeconds(5)));
            List<Change> changes = feed.changes();
            assertEquals(Set.of(Change.Kind.PUT, Change.Kind.DELETE),
                    Set.of(changes.get(0).kind(), changes.get(1).kind()));
            assertEquals(users.id(), changes.get(0).keyspace());
            assertTrue(feed.next(Duration.ofSeconds(5)));
            Change range = feed.change();
            assertEquals(Change.Kind.DELETE_RANGE, range.kind());
            assertNull(range.value());
            assertTrue(range.mergedAt().isEmpty() && range.lifetime().isEmpty());
            assertNull(feed.change());
            // The operator and the lifetime are commits, too.
            for (int i = 0; i < 3; i++) {
                assertTrue(feed.next(Duration.ofSeconds(5)));
            }
            Change merge = feed.change();
            assertEquals(Change.Kind.MERGE, merge.kind());
            assertEquals(Optional.of(Duration.ofHours(1)), merge.lifetime());
            Instant mergedAt = merge.mergedAt().orElseThrow();
            assertFalse(mergedAt.isBefore(before) || mergedAt.isAfter(Instant.now()));
            assertTrue(merge.expiresAt().isEmpty());
            assertNull(feed.change());
            assertFalse(feed.next(Duration.ofMillis(30)));
            assertEquals(db.newestCommit(), feed.seqno());
        }
        assertThrows(EskerException.class, () -> db.feed(mark + 1_000));
    }

    @Test
    void keyspacesAreNamedRenamedAndDropped() {
        assertEquals("users", users.name());
        db.renameKeyspace("users", "people");
        assertEquals(Set.of("default", "people"), Set.copyOf(db.keyspaceNames()));
        assertThrows(KeyspaceExistsException.class, () -> db.renameKeyspace("people", "default"));
        assertTrue(db.findKeyspace("users").isEmpty() && db.findKeyspace("people").isPresent());
        db.dropKeyspace("people");
        assertThrows(KeyspaceNotFoundException.class, () -> users.put(b("a"), b("1")));
        assertThrows(InvalidException.class, () -> db.keyspace("a\0b"));
        try (Esker other = Esker.openInMemory()) {
            Keyspace foreign = other.keyspace("x");
            assertThrows(InvalidException.class, () -> db.transact(t -> t.put(foreign, b("a"), b("1"))));
        }
    }

    @Test
    void aCheckpointIsADatabase() {
        put("a", "b");
        db.checkpoint(directory.resolve("copy"));
        put("c");
        assertTrue(db.stats().size() > 20);
        assertTrue(users.approximateSize(null, null) >= 0);
        try (Keyspace quick = users.withDurability(Durability.NONE)) {
            quick.put(b("d"), b("1"));
        }
        db.sync();
        db.check();
        try (Esker copy = Esker.options().readOnly(true).open(directory.resolve("copy"))) {
            Keyspace there = copy.findKeyspace("users").orElseThrow();
            assertEquals(2, there.size());
            assertThrows(ReadOnlyException.class, () -> there.put(b("a"), b("1")));
        }
        assertEquals(4, users.size());
    }

    @Test
    void errorsSayWhatAndWhere() throws IOException {
        Path path = directory.resolve("db");
        var locked = assertThrows(LockedException.class, () -> Esker.open(path));
        assertEquals(Status.LOCKED, locked.status());
        assertNotNull(locked.getMessage());
        Path none = directory.resolve("none");
        assertThrows(NoDatabaseException.class, () -> Esker.options().createIfMissing(false).open(none));
        put("a");
        db.compact();
        db.close();
        Path table;
        try (Stream<Path> files = Files.list(path)) {
            table = files.filter(file -> file.toString().endsWith(".sst")).findFirst().orElseThrow();
        }
        byte[] bytes = Files.readAllBytes(table);
        bytes[bytes.length / 2] ^= 1; // The filter, which an opening does not read.
        Files.write(table, bytes);
        try (Esker damaged = Esker.open(path)) {
            assertThrows(CorruptException.class, damaged::check);
        }
        bytes[0] ^= 1;
        Files.write(table, bytes);
        var corrupt = assertThrows(CorruptException.class, () -> Esker.open(path));
        assertEquals(table.getFileName(), corrupt.file().orElseThrow().getFileName());
        assertTrue(corrupt.offset().isPresent());
    }

    @Test
    void damageInTheMiddleOfAScanIsThrown() throws IOException {
        try (Batch batch = db.batch()) {
            for (int n = 0; n < 20_000; n++) {
                batch.put(users, b("%06d".formatted(n)), new byte[50]);
            }
            batch.commit();
        }
        db.compact();
        db.close();
        Path table;
        try (Stream<Path> files = Files.list(directory.resolve("db"))) {
            table = files.filter(file -> file.toString().endsWith(".sst")).findFirst().orElseThrow();
        }
        byte[] bytes = Files.readAllBytes(table);
        bytes[bytes.length / 2] ^= 1;
        Files.write(table, bytes);
        try (Esker damaged = Esker.open(directory.resolve("db"))) {
            var seen = new int[1];
            var there = damaged.keyspace("users");
            var corrupt = assertThrows(CorruptException.class, () -> {
                for (var entry : there.all()) {
                    seen[0]++;
                }
            });
            assertEquals(table.getFileName(), corrupt.file().orElseThrow().getFileName());
            assertTrue(corrupt.offset().isPresent());
            assertTrue(seen[0] > 0 && seen[0] < 20_000, () -> seen[0] + " entries before the damage");
            assertThrows(CorruptException.class, () -> there.all().visit((key, value) -> true));
            assertThrows(CorruptException.class, () -> there.asMap(Codec.UTF8, Codec.UTF8).forEach((k, v) -> {}));
        }
    }
}
