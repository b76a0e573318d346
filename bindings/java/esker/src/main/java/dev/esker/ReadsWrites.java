package dev.esker;

/** Reads and writes of a keyspace. */
public interface ReadsWrites extends Reads, Writes {
    /** Removes a key and returns the value that it had, or null. */
    byte[] remove(byte[] key);

    /**
     * Adds to a number of eight bytes (little-endian, two's complement; 0 if the key is missing) and returns
     * the number before. The sum wraps.
     */
    long getAndAdd(byte[] key, long by);
}
