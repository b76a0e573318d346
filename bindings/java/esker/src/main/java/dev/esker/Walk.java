package dev.esker;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * An iterator of the library, which gives entries in chunks: few calls for many entries.
 *
 * <p>An entry of a chunk is the length of its key and of its value (four bytes each, little-endian), the key,
 * the value. Chunks grow, so that a short walk reads little ahead.
 */
final class Walk {
    static final ValueLayout.OfInt LENGTH =
            ValueLayout.JAVA_INT_UNALIGNED.withOrder(java.nio.ByteOrder.LITTLE_ENDIAN);
    static final int HEADER_SIZE = 8;

    private static final long CHUNK_FIRST = 2048;
    private static final long CHUNK_MAX = 128 * 1024;

    private final Handle handle;
    private long chunkSize = CHUNK_FIRST;

    private Walk(Handle handle) {
        this.handle = handle;
    }

    /** Begins a walk of at most {@code limit} entries. */
    static Walk begin(Scan.Bounds of, int flags, long limit) {
        View view = of.view();
        Scratch s = view.begin();
        try {
            long keyspace = view.keyspace.address();
            long txn = view.txnAddress();
            int status = of.prefix() == null
                    ? Native.iterNew(
                            keyspace, txn, s.range(of.from(), of.to()), flags, s.out, s.error)
                    : Native.iterPrefix(
                            keyspace, txn, s.slice(s.first, of.prefix()), flags, s.out, s.error);
            s.check(status);
            long iter = Native.getLong(s.out);
            if (limit != Long.MAX_VALUE) {
                // Without it a chunk has entries that are not wanted.
                Native.run(Native.ITER_SET_LIMIT, iter, limit);
            }
            return new Walk(Handle.exclusive("scan", iter, Native.ITER_FREE, view.parent()));
        } finally {
            view.end(s);
        }
    }

    void freeWith(Object owner) {
        handle.freeWith(owner);
    }

    void close() {
        handle.close();
    }

    /** Reads the next chunk to the heap. Null: the walk is at its end, and freed. */
    byte[] next() {
        Scratch s = Scratch.take();
        try {
            handle.enter();
            byte[] chunk;
            try {
                chunk = fill(s) == 0 ? null : Native.bytes(s.chunkAddress(), Native.getLong(s.out2));
            } finally {
                handle.exit();
            }
            if (chunk == null) {
                close();
            }
            return chunk;
        } finally {
            s.give();
        }
    }

    /** Fills the buffer for chunks and returns the number of entries. */
    private long fill(Scratch s) {
        long size = chunkSize;
        chunkSize = Math.min(chunkSize * 4, CHUNK_MAX);
        while (true) {
            s.chunk(size);
            int status = Native.iterFill(handle.address(), s.buffer, s.out, s.out2, s.error);
            if (status != Status.BUFFER_TOO_SMALL.number()) {
                s.check(status);
                return Native.getLong(s.out);
            }
            size = Native.getLong(s.out2);
        }
    }

    /** Visits the next chunk. Returns the number of entries, 0 at the end, -1 if the visitor ends it. */
    long visit(Scan.Visitor visitor, long most) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment chunk;
            long entries;
            Scratch s = Scratch.take();
            try {
                handle.enter();
                try {
                    entries = fill(s);
                } finally {
                    handle.exit();
                }
                // The visitor may make other calls, which use the scratch.
                chunk = arena.allocate(Native.getLong(s.out2) * Math.min(entries, 1), 8);
                MemorySegment.copy(Native.MEMORY, s.chunkAddress(), chunk, 0, chunk.byteSize());
            } finally {
                s.give();
            }
            return visit(visitor, chunk.asReadOnly(), Math.min(entries, most));
        }
    }

    private static long visit(Scan.Visitor visitor, MemorySegment chunk, long entries) {
        long at = 0;
        for (long i = 0; i < entries; i++) {
            long key = Integer.toUnsignedLong(chunk.get(LENGTH, at));
            long value = Integer.toUnsignedLong(chunk.get(LENGTH, at + 4));
            at += HEADER_SIZE;
            if (!visitor.visit(chunk.asSlice(at, key), chunk.asSlice(at + key, value))) {
                return -1;
            }
            at += key + value;
        }
        return entries;
    }
}
