package dev.esker;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.ConcurrentNavigableMap;

/**
 * An ordered map of keys to values in a database.
 *
 * <p>Each write is a commit of its own; {@link Esker#transact} makes one of several. Any number of threads
 * may use a keyspace. It is closed with its database; closing it earlier frees little memory.
 */
public final class Keyspace extends View implements AutoCloseable {
    final Esker db;

    Keyspace(Esker db, long address) {
        super(Handle.shared("keyspace", address, Native.KEYSPACE_FREE, db.handle), null, db);
        this.db = db;
        keyspace.freeWith(this);
    }

    /** The handle that iterators are made below. */
    @Override
    Handle parent() {
        return db.handle;
    }

    /** Returns the present name. */
    public String name() {
        Scratch s = begin();
        try {
            s.check(Native.call(Native.KEYSPACE_NAME, keyspace.address(), s.value, s.error));
            return new String(s.takeValue(), StandardCharsets.UTF_8);
        } finally {
            end(s);
        }
    }

    /** Returns the number of the keyspace, which the change feed uses. It stays when the name changes. */
    public int id() {
        Scratch s = begin();
        try {
            return Native.call(Native.KEYSPACE_ID, keyspace.address());
        } finally {
            end(s);
        }
    }

    /** Returns the same keyspace with another durability of writes that are commits of their own. */
    public Keyspace withDurability(Durability durability) {
        Scratch s = begin();
        try {
            s.check(Native.call(Native.KEYSPACE_WITH_DURABILITY,
                    keyspace.address(), durability.number(), s.out, s.error));
            return new Keyspace(db, Native.getLong(s.out));
        } finally {
            end(s);
        }
    }

    /**
     * Sets the merge operator of a keyspace without one, for ever: "add-i64", "append", or another that is
     * built in.
     */
    public void setMergeOperator(String operator) {
        Scratch s = begin();
        try {
            s.check(Native.call(
                    Native.KEYSPACE_SET_OPERATOR, keyspace.address(), s.text(operator), s.error));
        } finally {
            end(s);
        }
    }

    /** Sets the lifetime of entries that are put without one. Zero: they do not expire. */
    public void setDefaultTtl(Duration ttl) {
        set(Native.KEYSPACE_SET_TTL, Options.milliseconds(ttl, "the lifetime"));
    }

    /** Sets the size in bytes beyond which the oldest entries are removed. 0: unlimited. */
    public void setBytesMax(long bytes) {
        set(Native.KEYSPACE_SET_BYTES, Options.positive(bytes, "the size"));
    }

    private void set(java.lang.invoke.MethodHandle function, long number) {
        Scratch s = begin();
        try {
            s.check(Native.call(function, keyspace.address(), number, s.error));
        } finally {
            end(s);
        }
    }

    /** Returns the approximate size on disk of a range, in bytes. Null: no bound. */
    public long approximateSize(byte[] from, byte[] to) {
        Scratch s = begin();
        try {
            s.check(Native.approximateSize(keyspace.address(), s.range(from, to), s.out, s.error));
            return Native.getLong(s.out);
        } finally {
            end(s);
        }
    }

    /**
     * Sets a key to {@code value} if its value is {@code expected}. Null stands for no value: the key must be
     * missing, or is removed. Returns whether it was.
     */
    public boolean compareAndSwap(byte[] key, byte[] expected, byte[] value) {
        return swap(key, expected, value).isSwapped();
    }

    /** What a swap did: the value before it, or null. */
    record Swap(boolean isSwapped, byte[] old) {}

    Swap swap(byte[] key, byte[] expected, byte[] value) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            MemorySegment values = s.range(expected, value);
            int status = Waits.call(() -> Native.compareAndSwap(
                    keyspace.address(), txnAddress(), name, values, s.value, s.error));
            s.check(status);
            byte[] old = Native.getLong(s.value) == 0 ? null : s.takeValue();
            return new Swap(status == Status.OK.number(), old);
        } finally {
            end(s);
        }
    }

    /** Returns the keyspace as a map. Its updates are atomic, its iterators see the state when they began. */
    public ConcurrentNavigableMap<byte[], byte[]> asMap() {
        return asMap(Codec.BYTES, Codec.BYTES);
    }

    /** Returns the keyspace as a map of objects, whose keys are in the order of their bytes. */
    public <K, V> ConcurrentNavigableMap<K, V> asMap(Codec<K> keys, Codec<V> values) {
        return new EskerMap<>(new MapSource<>(this, keys, values), MapBounds.ALL, false);
    }

    /** Frees the object; the data stays. */
    @Override
    public void close() {
        keyspace.close();
    }
}
