package dev.esker;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** Reads of a keyspace: of its newest state ({@link Keyspace}), in a transaction, or of a snapshot. */
public interface Reads {
    /** Returns the value of a key, or null if there is no such key. */
    byte[] get(byte[] key);

    /** Returns the values of keys of one state, in their order; null for a key that is missing. */
    List<byte[]> getAll(List<byte[]> keys);

    /** Lends the value of a key without a copy, or returns null. Close what is lent. */
    LentValue lend(byte[] key);

    /** As {@link #lend(byte[])}. The key of a confined or global arena is not copied. */
    LentValue lend(MemorySegment key);

    /** Whether a key exists. */
    boolean containsKey(byte[] key);

    /**
     * Returns the remaining lifetime of a key. Empty: there is no such key, or it does not expire; see
     * {@link #containsKey}.
     */
    Optional<Duration> ttl(byte[] key);

    /** Returns the exact number of keys. */
    long size();

    /** Returns a scan of all keys. */
    Scan<Entry> all();

    /** Returns a scan of the keys from {@code from} on, below {@code to}. Null: no bound. */
    Scan<Entry> range(byte[] from, byte[] to);

    /** Returns a scan of the keys that begin with a prefix. */
    Scan<Entry> prefix(byte[] prefix);
}
