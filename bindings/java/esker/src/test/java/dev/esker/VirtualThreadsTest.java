package dev.esker;

import static dev.esker.EskerTest.b;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Virtual threads, of which many share few carriers. */
class VirtualThreadsTest {
    /** More threads than there are carriers. */
    private static final int CROWD = 2 * Runtime.getRuntime().availableProcessors() + 2;

    @TempDir
    Path directory;

    private Esker open() {
        return Esker.options().durability(Durability.NONE).feed(1 << 20, Duration.ofHours(1)).open(directory);
    }

    /** A thread that waits for another one lets it run: calls that wait keep no carrier. */
    @Test
    void callsThatWaitKeepNoCarrier() throws Exception {
        try (Esker db = open(); Feed feed = db.feed(db.newestCommit())) {
            Keyspace ks = db.keyspace("k");
            var began = new CountDownLatch(1);
            var waiting = new AtomicLong();
            List<Thread> crowd = new ArrayList<>();
            Thread owner = Thread.startVirtualThread(() -> {
                try (Transaction t = db.beginTransaction(Isolation.EXCLUSIVE)) {
                    t.put(ks, b("n"), b("1"));
                    began.countDown();
                    while (waiting.get() < CROWD) {
                        sleep();
                    }
                    sleep();
                    t.commit();
                }
            });
            began.await();
            for (int i = 0; i < CROWD; i++) {
                int number = i;
                crowd.add(Thread.startVirtualThread(() -> {
                    waiting.incrementAndGet();
                    wait(db, ks, number);
                }));
            }
            crowd.add(owner);
            for (Thread thread : crowd) {
                assertTrue(thread.join(Duration.ofSeconds(30)), "a thread hangs");
            }
            assertEquals(CROWD, ks.getAndAdd(b("sum"), 0));
            assertTrue(feed.next(Duration.ofSeconds(30)));
        }
    }

    /** A write, a transaction or an exclusive one, each of which adds one. */
    private static void wait(Esker db, Keyspace ks, int number) {
        switch (number % 3) {
            case 0 -> ks.getAndAdd(b("sum"), 1);
            case 1 -> db.transact(t -> t.keyspace(ks).getAndAdd(b("sum"), 1));
            default -> db.transactResult(Isolation.EXCLUSIVE, t -> t.keyspace(ks).getAndAdd(b("sum"), 1));
        }
    }

    /** Those that wait for a key let its owner run, and those that wait for the feed its writer. */
    @Test
    void locksAndTheFeedKeepNoCarrier() throws Exception {
        try (Esker db = open()) {
            Keyspace ks = db.keyspace("k");
            long mark = db.newestCommit();
            List<Thread> crowd = new ArrayList<>();
            for (int i = 0; i < CROWD; i++) {
                crowd.add(Thread.startVirtualThread(() -> {
                    try (Feed feed = db.feed(mark)) {
                        assertTrue(feed.next(Duration.ofSeconds(60)));
                    }
                }));
                crowd.add(Thread.startVirtualThread(() -> db.transact(t -> {
                    t.lock(ks, b("n"));
                    sleep();
                    t.keyspace(ks).getAndAdd(b("n"), 1);
                })));
            }
            for (Thread thread : crowd) {
                assertTrue(thread.join(Duration.ofSeconds(30)), "a thread hangs");
            }
            assertEquals(CROWD, ks.getAndAdd(b("n"), 0));
        }
    }

    /** Virtual threads share threads. A write of one must not pass the exclusive transaction of another. */
    @Test
    void anExclusiveTransactionOfAVirtualThreadKeepsOthersOut() throws Exception {
        try (Esker db = open()) {
            Keyspace ks = db.keyspace("k");
            var passed = new AtomicLong();
            Thread exclusive = Thread.ofVirtual().start(() -> {
                for (int round = 0; round < 100; round++) {
                    byte[] value = b("of round " + round);
                    Thread other;
                    try (Transaction t = db.beginTransaction(Isolation.EXCLUSIVE)) {
                        byte[] before = t.get(ks, b("n"));
                        // The thread that has just used the transaction may run this one next.
                        other = Thread.startVirtualThread(() -> ks.put(b("n"), value));
                        sleep();
                        passed.addAndGet(Arrays.equals(before, ks.get(b("n"))) ? 0 : 1);
                        t.commit();
                    }
                    join(other);
                    assertEquals(EskerTest.s(value), EskerTest.s(ks.get(b("n"))));
                }
            });
            assertTrue(exclusive.join(Duration.ofSeconds(60)));
            assertEquals(0, passed.get());
            assertEquals("of round 99", EskerTest.s(ks.get(b("n"))));
        }
    }

    private static void sleep() {
        try {
            Thread.sleep(2);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
