package dev.esker;

import java.time.Duration;

/** Reads and writes of a keyspace. */
public interface ReadsWrites extends Reads, Writes {
    /** Removes a key and returns the value that it had, or null. */
    byte[] remove(byte[] key);

    /**
     * Adds to a number of eight bytes (little-endian, two's complement; 0 if the key is missing) and returns
     * the number before. The sum wraps.
     */
    long getAndAdd(byte[] key, long by);

    /** Lets a key expire after some time, from now on. Returns whether the key exists. */
    boolean expire(byte[] key, Duration ttl);

    /** Lets a key live until it is removed. Returns whether the key exists. */
    boolean persist(byte[] key);
}
