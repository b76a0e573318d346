package dev.esker;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;

/**
 * A value that the engine lends without a copy, often in its block cache.
 *
 * <p>Only the thread that got it may use the segment, until {@link #close}; later uses throw
 * {@link IllegalStateException}. A value keeps memory of the cache until it is closed.
 */
public final class LentValue implements AutoCloseable {
    private final Arena arena = Arena.ofConfined();
    private final MemorySegment segment;
    private final Cleaner.Cleanable owner;

    /** Takes an esker_value. */
    LentValue(long data, long length, long owner) {
        this.segment = MemorySegment.ofAddress(data).reinterpret(length, arena, null).asReadOnly();
        // The segment keeps its scope reachable, so a forgotten value is freed after the last segment.
        this.owner = Handle.CLEANER.register(arena.scope(), new Free(owner));
    }

    private record Free(long owner) implements Runnable {
        @Override
        public void run() {
            Scratch scratch = Scratch.take();
            try {
                Native.setLong(scratch.value, 0);
                Native.setLong(scratch.value + 8, 0);
                Native.setLong(scratch.value + 16, owner);
                Native.run(Native.VALUE_FREE, scratch.value);
            } finally {
                scratch.give();
            }
        }
    }

    /** The bytes of the value, read-only. */
    public MemorySegment segment() {
        return segment;
    }

    /** Returns a copy of the value. */
    public byte[] toBytes() {
        return Segments.bytes(segment);
    }

    /** Gives the value back. The second call does nothing. */
    @Override
    public void close() {
        if (arena.scope().isAlive()) {
            arena.close();
            owner.clean();
        }
    }
}
