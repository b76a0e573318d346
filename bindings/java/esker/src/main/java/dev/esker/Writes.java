package dev.esker;

import java.lang.foreign.MemorySegment;
import java.time.Duration;

/** Writes to a keyspace: each a commit of its own ({@link Keyspace}), or part of a transaction or batch. */
public interface Writes {
    /** Sets a key to a value. */
    void put(byte[] key, byte[] value);

    /** Sets a key to a value that expires after some time, from now on. */
    void put(byte[] key, byte[] value, Duration ttl);

    /** Sets a key to a value. Segments of confined and global arenas are not copied. */
    void put(MemorySegment key, MemorySegment value);

    /** Merges an operand into a key by the keyspace's merge operator, without reading the key. */
    void merge(byte[] key, byte[] operand);

    /** Removes a key, whether it exists or not. */
    void delete(byte[] key);

    /** Removes the keys from {@code from} on, below {@code to}, at a constant cost. Null: no bound. */
    void deleteRange(byte[] from, byte[] to);

    /** Removes all keys that begin with a prefix. */
    void deletePrefix(byte[] prefix);
}
