package dev.esker;

import static dev.esker.EskerTest.b;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects that are used after their end, closed while they are used, or forgotten. */
class LifetimeTest {
    @TempDir
    Path directory;

    private Esker open() {
        return Esker.options().durability(Durability.NONE).feed(1 << 20, Duration.ofHours(1)).open(directory);
    }

    @Test
    void allThatWasMadeOfADatabaseEndsWithIt() {
        Esker db = open();
        Keyspace ks = db.keyspace("k");
        ks.put(b("a"), b("1"));
        Transaction t = db.beginTransaction();
        Snapshot snapshot = db.snapshot();
        Batch batch = db.batch();
        Feed feed = db.feed(0);
        ScanIterator<Entry> walk = ks.all().iterator();
        ScanIterator<Entry> within = t.range(ks, null, null).iterator();
        LentValue lent = ks.lend(b("a"));
        db.close();
        db.close();
        assertThrows(ClosedException.class, () -> ks.get(b("a")));
        assertThrows(ClosedException.class, () -> t.get(ks, b("a")));
        assertThrows(ClosedException.class, t::commit);
        assertThrows(ClosedException.class, () -> snapshot.get(ks, b("a")));
        assertThrows(ClosedException.class, batch::commit);
        assertThrows(ClosedException.class, () -> feed.next(Duration.ZERO));
        assertThrows(ClosedException.class, walk::hasNext);
        assertThrows(ClosedException.class, within::hasNext);
        assertThrows(ClosedException.class, () -> db.keyspace("k"));
        assertThrows(ClosedException.class, () -> ks.all().iterator());
        assertEquals("1", EskerTest.s(lent.toBytes()));
        List.of(ks, t, snapshot, batch, feed, walk, within, lent).forEach(LifetimeTest::close);
        open().close();
    }

    private static void close(AutoCloseable object) {
        try {
            object.close();
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    /** Threads that use all kinds of objects, while the database closes. */
    @Test
    void closingWaitsForCallsOfOtherThreads() throws Exception {
        for (int round = 0; round < 8; round++) {
            Esker db = open();
            Keyspace ks = db.keyspace("k");
            Snapshot shared = db.snapshot();
            Transaction one = db.beginTransaction();
            ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
            AtomicLong calls = new AtomicLong();
            CountDownLatch began = new CountDownLatch(8);
            List<Runnable> work = List.of(
                    () -> ks.put(b("a" + calls.get() % 100), new byte[100]),
                    () -> ks.all().stream().count(),
                    () -> db.transact(t -> t.put(ks, b("t"), t.get(ks, b("a1")) == null ? b("0") : b("1"))),
                    () -> shared.keyspace(ks).all().limit(5).toList(),
                    () -> one.put(ks, b("x"), b("y")),
                    () -> db.keyspace("k" + calls.get() % 5).get(b("a")),
                    () -> db.transactResult(Isolation.EXCLUSIVE, t -> t.keyspace(ks).getAndAdd(b("n"), 1)),
                    () -> {
                        try (Feed feed = db.feed(db.newestCommit())) {
                            feed.next(Duration.ofMillis(50));
                        }
                    });
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < work.size(); i++) {
                Runnable body = work.get(i);
                Runnable loop = () -> {
                    began.countDown();
                    try {
                        while (true) {
                            body.run();
                            calls.incrementAndGet();
                        }
                    } catch (ClosedException e) {
                        // The end of the test.
                    } catch (Throwable e) {
                        failures.add(e);
                    }
                };
                // Virtual threads that are busy in native calls let no others run on their carriers.
                threads.add(i == 1 ? Thread.ofVirtual().start(loop) : Thread.ofPlatform().start(loop));
            }
            assertTrue(began.await(60, TimeUnit.SECONDS), "a thread did not begin");
            Thread.sleep(10);
            db.close();
            for (Thread thread : threads) {
                thread.join(60_000);
                assertTrue(!thread.isAlive(), "a thread hangs");
            }
            assertEquals(List.of(), List.copyOf(failures));
        }
    }

    @Test
    void forgottenObjectsAreFreed() throws Exception {
        forget();
        // The last to be freed is the database, which can then be opened again.
        EskerException last = null;
        for (int i = 0; i < 100; i++) {
            System.gc();
            Thread.sleep(20);
            try (Esker again = open()) {
                assertEquals(1, again.keyspace("k").size());
                return;
            } catch (LockedException e) {
                last = e;
            }
        }
        throw last;
    }

    private void forget() {
        Esker db = open();
        Keyspace ks = db.keyspace("k");
        ks.put(b("a"), b("1"));
        db.beginTransaction(Isolation.EXCLUSIVE).put(ks, b("never"), b("1"));
        assertNotNull(ks.all().iterator().next());
        assertNotNull(ks.lend(b("a")).segment());
        db.snapshot();
        db.feed(0);
    }
}
