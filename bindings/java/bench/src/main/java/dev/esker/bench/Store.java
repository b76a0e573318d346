package dev.esker.bench;

import java.nio.file.Path;
import java.util.Set;

/** A database with the calls that the benchmark makes. Keys and values are arrays of bytes. */
interface Store {
    /** What a commit waits for. */
    enum Wait {
        /** The end of the process can take the last commits. */
        NOTHING,
        /** The operating system has the commit. */
        SYSTEM,
        DISK
    }

    /** Opens a new database. */
    @FunctionalInterface
    interface Opening {
        Store open(Path directory) throws Exception;
    }

    Set<Wait> waits();

    void put(byte[] key, byte[] value, Wait wait) throws Exception;

    /** Commits entries together, which the operating system has then. */
    void batch(byte[][] keys, byte[][] values) throws Exception;

    byte[] get(byte[] key) throws Exception;

    /** Visits at most some entries from a key on, or from the first, and returns their number. */
    int scan(byte[] from, int limit) throws Exception;

    /** Compacts, so that nothing is left to do in the background. */
    void settle() throws Exception;

    void sync() throws Exception;

    void close();
}
