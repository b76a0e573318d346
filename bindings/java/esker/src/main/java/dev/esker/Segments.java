package dev.esker;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Addresses of segments of the caller. */
final class Segments {
    /** A thread that runs never: it may access a segment only if all threads may. */
    private static final Thread OTHER = new Thread(() -> {});

    private Segments() {}

    /**
     * Returns an address at which the bytes of a segment are until the call ends.
     *
     * <p>Another thread could free the segment of a shared arena during the call, so its bytes are copied, as
     * are those of arrays. The segment of a confined arena can only be freed by this thread.
     */
    static long address(MemorySegment segment, Scratch scratch) {
        if (segment.isNative() && isSafe(segment)) {
            return segment.address();
        }
        long size = segment.byteSize();
        long copy = scratch.allocate(size);
        MemorySegment.copy(segment, 0, Native.MEMORY, copy, size);
        return copy;
    }

    /** Whether the segment is alive and cannot be freed before the call ends. */
    private static boolean isSafe(MemorySegment segment) {
        if (!segment.scope().isAlive() || !segment.isAccessibleBy(Thread.currentThread())) {
            return false; // The copy throws the fitting exception.
        }
        return segment.scope().equals(Arena.global().scope()) || !segment.isAccessibleBy(OTHER);
    }

    /** Whether the segment has these bytes. */
    static byte[] bytes(MemorySegment segment) {
        return segment.toArray(ValueLayout.JAVA_BYTE);
    }
}
