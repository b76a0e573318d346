package dev.esker;

import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * How a database is opened. The defaults suit most programs.
 *
 * <pre>{@code
 *   try (var db = Esker.options().memory(256 << 20).feed(64 << 20, Duration.ofHours(1)).open("data")) { ... }
 * }</pre>
 */
public final class Options {
    /** Applies an option to esker_options. */
    private interface Setting {
        void apply(long options, Scratch scratch);
    }

    private final List<Setting> settings = new ArrayList<>();

    Options() {}

    private Options set(Setting setting) {
        settings.add(setting);
        return this;
    }

    private Options set(MethodHandle function, boolean yes) {
        return set((options, s) -> Native.run(function, options, yes));
    }

    private Options set(MethodHandle function, long number) {
        return set((options, s) -> Native.run(function, options, number));
    }

    /** Memory in bytes for cached blocks, indexes, filters and memtables. Default 1 GiB. */
    public Options memory(long bytes) {
        return set(Native.SET_MEMORY, positive(bytes, "the memory"));
    }

    /** The durability of commits that name none. Default {@link Durability#SYNC}. */
    public Options durability(Durability durability) {
        int number = durability.number();
        return set((options, s) -> s.check(Native.call(Native.SET_DURABILITY, options, number, s.error)));
    }

    /** Whether transactions that name no isolation are serializable, the default, or read snapshots. */
    public Options serializable(boolean yes) {
        return set(Native.SET_SERIALIZABLE, yes);
    }

    /** Whether a missing database is created. Default true. */
    public Options createIfMissing(boolean yes) {
        return set(Native.SET_CREATE, yes);
    }

    /** Whether a database that exists is an error. Default false. */
    public Options errorIfExists(boolean yes) {
        return set(Native.SET_ERROR_IF_EXISTS, yes);
    }

    /** Whether the database is opened to read it, beside other readers. Default false. */
    public Options readOnly(boolean yes) {
        return set(Native.SET_READ_ONLY, yes);
    }

    /** Whether tables are compressed where it pays. Default true. */
    public Options compression(boolean yes) {
        return set(Native.SET_COMPRESSION, yes);
    }

    /** Values of this many bytes and more are stored in blob files. 0: none are. */
    public Options blobsFrom(long bytes) {
        return set(Native.SET_BLOBS, positive(bytes, "the size of values"));
    }

    /** How long an opening waits for a database that another process has open. Default: not at all. */
    public Options lockTimeout(Duration timeout) {
        return set(Native.SET_LOCK_TIMEOUT, milliseconds(timeout, "the timeout"));
    }

    /** Keeps a change feed: the commits of the last time, and at most this many bytes of them. */
    public Options feed(long bytes, Duration time) {
        positive(bytes, "the size of the feed");
        long seconds = milliseconds(time, "the time of the feed") / 1000;
        return set((options, s) -> Native.run(Native.SET_FEED, options, bytes, seconds));
    }

    /** Encrypts the database with the master keys of a file. */
    public Options keyFile(Path file) {
        return set((options, s) ->
                s.check(Native.call(Native.SET_KEY_FILE, options, s.text(file.toString()), s.error)));
    }

    /** Opens the database in a directory. */
    public Esker open(String directory) {
        return open(Path.of(directory));
    }

    /** Opens the database in a directory. */
    public Esker open(Path directory) {
        return open(directory.toString(), false);
    }

    /** Opens a database in memory, which ends when it is closed. */
    public Esker openInMemory() {
        return open(null, true);
    }

    private Esker open(String directory, boolean isInMemory) {
        Scratch s = Scratch.take();
        long options = Native.result(Native.OPTIONS_NEW);
        try {
            for (Setting setting : settings) {
                setting.apply(options, s);
            }
            s.check(isInMemory
                    ? Native.call(Native.OPEN_IN_MEMORY, options, s.out, s.error)
                    : Native.call(Native.OPEN, s.text(directory), options, s.out, s.error));
            return new Esker(Native.getLong(s.out));
        } finally {
            Native.run(Native.OPTIONS_FREE, options);
            s.give();
        }
    }

    static long positive(long number, String what) {
        if (number < 0) {
            throw new InvalidException(what + " is negative");
        }
        return number;
    }

    /** Milliseconds, rounded up. */
    static long milliseconds(Duration duration, String what) {
        if (duration.isNegative()) {
            throw new InvalidException(what + " is negative");
        }
        if (duration.getSeconds() >= Long.MAX_VALUE / 1000) {
            return Long.MAX_VALUE;
        }
        return duration.plusNanos(999_999).toMillis();
    }
}
