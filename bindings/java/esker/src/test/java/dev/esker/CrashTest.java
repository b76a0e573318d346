package dev.esker;

import static dev.esker.EskerTest.b;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A process that is killed while it writes loses nothing that it acknowledged. */
class CrashTest {
    private static final int ROUNDS = 4;

    @TempDir
    Path directory;

    /** Commits pairs of entries and prints the number of each commit once it is acknowledged. */
    static final class Child {
        public static void main(String[] arguments) {
            Durability durability = Durability.valueOf(arguments[1]);
            try (Esker db = Esker.options().memory(8 << 20).durability(durability).open(arguments[0])) {
                Keyspace left = db.keyspace("left");
                Keyspace right = db.keyspace("right");
                long first = Long.parseLong(arguments[2]);
                if (first > 0 && first % 10 == 0) {
                    left.delete(Tuple.of(first - 10).pack()); // The last process may not have come so far.
                }
                for (long n = first; ; n++) {
                    byte[] key = Tuple.of(n).pack();
                    byte[] value = new byte[(int) (n % 3_000)];
                    db.transact(t -> {
                        t.put(left, key, value);
                        t.keyspace(right).put(key, value, Duration.ofHours(1));
                    });
                    if (n % 10 == 9) {
                        // Removes the entries of this commit and the nine before it.
                        left.deleteRange(Tuple.of(n - 9).pack(), Tuple.of(n - 8).pack());
                    }
                    System.out.println(n);
                }
            }
        }
    }

    @Test
    void killedWritersLoseNothing() throws Exception {
        Random random = new Random(3);
        long next = 0;
        for (int round = 0; round < ROUNDS; round++) {
            Durability durability = round % 2 == 0 ? Durability.SYNC : Durability.BUFFERED;
            next = writeUntilKilled(durability, next, 50 + random.nextInt(400)) + 1;
            try (Esker db = Esker.open(directory)) {
                db.check();
                next = verify(db, next);
            }
        }
        assertTrue(next > ROUNDS * 50, "only " + next + " commits");
    }

    /** Returns the last number that was acknowledged. */
    private long writeUntilKilled(Durability durability, long from, int commits) throws Exception {
        Process child = new ProcessBuilder(List.of(
                ProcessHandle.current().info().command().orElseThrow(),
                "--enable-native-access=ALL-UNNAMED", "-cp", System.getProperty("java.class.path"),
                Child.class.getName(), directory.toString(), durability.name(), Long.toString(from)))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        long last = from - 1;
        try (BufferedReader out = child.inputReader()) {
            for (String line = out.readLine(); line != null; line = out.readLine()) {
                last = Long.parseLong(line);
                if (last == from + commits) {
                    child.toHandle().destroyForcibly(); // Unlike the process's, it leaves the pipe open.
                }
            }
        }
        assertEquals(137, child.waitFor(), "the child ended by itself");
        return last;
    }

    /** Checks all commits below {@code next}, and returns the first number that was not committed. */
    private static long verify(Esker db, long next) {
        Keyspace left = db.keyspace("left");
        Keyspace right = db.keyspace("right");
        for (long n = 0; n < next; n++) {
            byte[] key = Tuple.of(n).pack();
            assertArrayEquals(new byte[(int) (n % 3_000)], right.get(key), "commit " + n);
            boolean isRemoved = n % 10 == 0 && n + 9 < next;
            assertTrue(isRemoved != left.containsKey(key) || n + 9 == next, "commit " + n);
        }
        // A commit that was not acknowledged is there as a whole, or not at all.
        long end = next;
        for (; right.containsKey(Tuple.of(end).pack()); end++) {
            assertTrue(left.containsKey(Tuple.of(end).pack()) || end % 10 == 0, "commit " + end);
        }
        assertEquals(end, right.size());
        left.put(b("end"), b(Long.toString(end)));
        left.delete(b("end"));
        return end;
    }
}
