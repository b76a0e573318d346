package dev.esker;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.BiFunction;

/**
 * A walk over the entries or keys of a {@link Scan}. It is freed at its last entry; close it to end it
 * earlier. One thread at a time may use it.
 *
 * @param <T> what it gives
 */
public final class ScanIterator<T> implements Iterator<T>, AutoCloseable {
    private static final VarHandle LENGTH =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final byte[] EMPTY = new byte[0];

    private final Walk walk;
    private final BiFunction<byte[], byte[], T> make;
    /** Keeps the keyspace or transaction reachable. */
    private final Object owner;
    private long left;
    private byte[] chunk = EMPTY;
    private int at;
    private boolean isAtEnd;
    private volatile boolean isClosed;

    ScanIterator(Walk walk, long limit, BiFunction<byte[], byte[], T> make, Object owner) {
        this.walk = walk;
        this.left = limit;
        this.make = make;
        this.owner = owner;
        walk.freeWith(this);
    }

    @Override
    public boolean hasNext() {
        if (isAtEnd) {
            return false;
        }
        if (isClosed) {
            throw new ClosedException("the scan is closed");
        }
        if (left == 0) {
            end();
        } else if (at == chunk.length) {
            chunk = walk.next();
            at = 0;
            if (chunk == null) {
                end();
            }
            Reference.reachabilityFence(owner);
            Reference.reachabilityFence(this);
        }
        return !isAtEnd;
    }

    private void end() {
        isAtEnd = true;
        chunk = EMPTY;
        at = 0;
        walk.close();
    }

    @Override
    public T next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        left--;
        int keyLength = (int) LENGTH.get(chunk, at);
        int valueLength = (int) LENGTH.get(chunk, at + 4);
        int key = at + Walk.HEADER_SIZE;
        int value = key + keyLength;
        at = value + valueLength;
        byte[] valueBytes = valueLength == 0 ? EMPTY : Arrays.copyOfRange(chunk, value, at);
        return make.apply(Arrays.copyOfRange(chunk, key, value), valueBytes);
    }

    /** Frees the walk. The second call does nothing. */
    @Override
    public void close() {
        isClosed = true;
        walk.close();
    }
}
