package dev.esker;

import java.lang.ref.Reference;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * A reader of the change feed: every durable commit, in order. Store the number of the last commit that was
 * processed, and resume after it. One thread at a time may use it.
 *
 * <pre>{@code
 *   try (var feed = db.feed(last)) {
 *       while (feed.next(Duration.ofSeconds(1))) {
 *           for (Change c; (c = feed.change()) != null; ) { ... }
 *           last = feed.seqno();
 *       }
 *   }
 * }</pre>
 */
public final class Feed implements AutoCloseable {
    /** A wait in the library, so that closing need not wait longer. */
    private static final long WAIT_MS_MAX = 20;

    private final Esker db;
    private final Handle handle;
    private long seqno;

    Feed(Esker db, Handle handle) {
        this.db = db;
        this.handle = handle.freeWith(this);
    }

    /** Moves to the next commit; waits for one. Returns false if there was none in time. */
    public boolean next(Duration timeout) {
        long wait = Math.min(Options.milliseconds(timeout, "the timeout"), 1L << 40);
        long end = System.nanoTime() + wait * 1_000_000;
        while (true) {
            long left = (end - System.nanoTime()) / 1_000_000;
            if (next(Math.clamp(left, 0, WAIT_MS_MAX))) {
                return true;
            }
            if (left <= 0) {
                return false;
            }
        }
    }

    private boolean next(long milliseconds) {
        Scratch s = begin();
        try {
            int status = Waits.callNow(() -> Native.call(
                    Native.FEED_NEXT, handle.address(), milliseconds, s.out, s.error));
            s.check(status);
            boolean isThere = status == Status.OK.number();
            if (isThere) {
                seqno = Native.getLong(s.out);
            }
            return isThere;
        } finally {
            end(s);
        }
    }

    /** Returns the number of the commit. */
    public long seqno() {
        return seqno;
    }

    /** Returns the next change of the commit, or null. */
    public Change change() {
        Scratch s = begin();
        try {
            int status = Native.call(Native.FEED_CHANGE, handle.address(), s.change, s.error);
            s.check(status);
            return status == Status.OK.number() ? change(s.change) : null;
        } finally {
            end(s);
        }
    }

    /** Returns all changes of the commit that were not read yet. */
    public List<Change> changes() {
        List<Change> changes = new ArrayList<>();
        for (Change change = change(); change != null; change = change()) {
            changes.add(change);
        }
        return changes;
    }

    /** An esker_change: kind and keyspace (4 bytes), key and value (slices), expiry, time, lifetime. */
    private static Change change(long at) {
        long value = Native.getLong(at + 24);
        // Numbers beyond Long.MAX_VALUE are longer than time lasts.
        long lifetime = Native.getLong(at + 56) & Long.MAX_VALUE;
        return new Change(
                Change.Kind.of(Native.getInt(at)),
                Native.getInt(at + 4),
                Native.bytes(Native.getLong(at + 8), Native.getLong(at + 16)),
                value == 0 ? null : Native.bytes(value, Native.getLong(at + 32)),
                time(Native.getLong(at + 40)),
                time(Native.getLong(at + 48)),
                lifetime == 0 ? Optional.empty() : Optional.of(Duration.ofMillis(lifetime)));
    }

    private static Optional<Instant> time(long milliseconds) {
        return milliseconds == 0 ? Optional.empty() : Optional.of(Instant.ofEpochMilli(milliseconds));
    }

    private Scratch begin() {
        handle.enter();
        return Scratch.take();
    }

    private void end(Scratch s) {
        s.give();
        handle.exit();
        Reference.reachabilityFence(db);
        Reference.reachabilityFence(this);
    }

    /** Frees the reader. The second call does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
