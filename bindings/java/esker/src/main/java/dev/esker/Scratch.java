package dev.esker;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.util.concurrent.ArrayBlockingQueue;

/**
 * Native memory for the arguments and results of one call. Each platform thread has its own; virtual threads
 * share a pool.
 *
 * <pre>
 *   | error | out | out2 | value | change | slices: first, second, buffer | range | data |
 * </pre>
 */
final class Scratch {
    private static final int DATA_AT = 256;
    private static final long SIZE = 8 * 1024;
    /** Size of the buffer for chunks of iterators that a thread keeps. */
    private static final long CHUNK_KEPT_MAX = 256 * 1024;
    private static final int POOLED_MAX = 64;

    private static final ThreadLocal<Scratch> OF_THREAD = ThreadLocal.withInitial(Scratch::new);
    private static final ArrayBlockingQueue<Scratch> POOL = new ArrayBlockingQueue<>(POOLED_MAX);

    private final MemorySegment memory = Arena.ofAuto().allocate(SIZE, 16);
    private final long base = memory.address();
    /** Address of the pointer to an error. */
    final long error = base;
    /** Addresses of results. */
    final long out = base + 8;
    final long out2 = base + 16;
    /** Address of an esker_value. */
    final long value = base + 24;
    /** Address of an esker_change. */
    final long change = base + 48;
    final MemorySegment first = memory.asSlice(112, 16);
    final MemorySegment second = memory.asSlice(128, 16);
    final MemorySegment buffer = memory.asSlice(144, 16);
    final MemorySegment range = memory.asSlice(160, 32);

    private long used = DATA_AT;
    private boolean isTaken;
    /** Memory for arguments that do not fit. */
    private Arena extra;
    private MemorySegment chunk;

    private Scratch() {}

    static Scratch take() {
        Scratch scratch;
        if (Thread.currentThread().isVirtual()) {
            scratch = POOL.poll();
            if (scratch == null) {
                scratch = new Scratch();
            }
        } else {
            scratch = OF_THREAD.get();
            if (scratch.isTaken) {
                // A function of the caller runs within a call.
                scratch = new Scratch();
            }
        }
        scratch.isTaken = true;
        return scratch;
    }

    void give() {
        used = DATA_AT;
        isTaken = false;
        if (extra != null) {
            extra.close();
            extra = null;
        }
        if (Thread.currentThread().isVirtual()) {
            POOL.offer(this);
        }
        Reference.reachabilityFence(memory);
    }

    /** Returns the address of fresh memory that lives until the call ends. */
    long allocate(long size) {
        if (size <= SIZE - used) {
            long address = base + used;
            used += (size + 7) & -8;
            return address;
        }
        return large(size);
    }

    private long large(long size) {
        if (extra == null) {
            extra = Arena.ofConfined();
        }
        return extra.allocate(size, 8).address();
    }

    /** Copies bytes into native memory and returns their address. */
    long copy(byte[] bytes) {
        long address = allocate(bytes.length);
        MemorySegment.copy(bytes, 0, Native.MEMORY, ValueLayout.JAVA_BYTE, address, bytes.length);
        return address;
    }

    /** Sets a slice to bytes. */
    MemorySegment slice(MemorySegment slice, byte[] bytes) {
        return set(slice, 0, copy(bytes), bytes.length);
    }

    /** Sets a slice to the bytes of a segment: without a copy if no other thread can free it meanwhile. */
    MemorySegment slice(MemorySegment slice, MemorySegment bytes) {
        return set(slice, 0, Segments.address(bytes, this), bytes.byteSize());
    }

    /** Sets the range, or what else has two slices. */
    MemorySegment range(byte[] start, byte[] end) {
        set(range, 0, start == null ? 0 : copy(start), start == null ? 0 : start.length);
        return set(range, 16, end == null ? 0 : copy(end), end == null ? 0 : end.length);
    }

    /** Sets the buffer to the memory that is left. */
    MemorySegment buffer() {
        long size = Math.max(0, SIZE - used);
        return set(buffer, 0, base + used, size);
    }

    /** The address of the memory that {@link #buffer} gave. */
    long bufferAddress() {
        return base + used;
    }

    /** The address of the memory that {@link #chunk} gave. */
    long chunkAddress() {
        return buffer.get(ValueLayout.JAVA_LONG, 0);
    }

    /** Sets the buffer to the memory for chunks, of this size. */
    void chunk(long size) {
        if (size > CHUNK_KEPT_MAX) {
            set(buffer, 0, large(size), size);
            return;
        }
        if (chunk == null || chunk.byteSize() < size) {
            chunk = Arena.ofAuto().allocate(size, 8);
        }
        set(buffer, 0, chunk.address(), size);
    }

    private static MemorySegment set(MemorySegment slice, long at, long address, long length) {
        slice.set(ValueLayout.JAVA_LONG, at, address);
        slice.set(ValueLayout.JAVA_LONG, at + 8, length);
        return slice;
    }

    /** Copies a text as UTF-8 with a zero byte at its end. */
    long text(String text) {
        if (text.indexOf('\0') >= 0) {
            throw new InvalidException("a name with a zero byte: " + text.replace('\0', ' '));
        }
        byte[] utf8 = Utf8.encode(text);
        long address = allocate(utf8.length + 1L);
        MemorySegment.copy(utf8, 0, Native.MEMORY, ValueLayout.JAVA_BYTE, address, utf8.length);
        Native.MEMORY.set(ValueLayout.JAVA_BYTE, address + utf8.length, (byte) 0);
        return address;
    }

    /** Throws the error of a call, if its status is one. */
    void check(int status) {
        if (status >= Status.INVALID.number()) {
            throw failure(status);
        }
    }

    /** The exception for a status that is an error. */
    EskerException failure(int status) {
        long address = Native.getLong(error);
        Native.setLong(error, 0);
        return EskerException.of(status, address, out);
    }

    /** Takes the value that a call returned: a copy on the heap. */
    byte[] takeValue() {
        try {
            return Native.bytes(Native.getLong(value), Native.getLong(value + 8));
        } finally {
            Native.run(Native.VALUE_FREE, value);
        }
    }
}
