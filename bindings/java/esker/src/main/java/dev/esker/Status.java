package dev.esker;

/** How a call of the engine ended. */
public enum Status {
    /** Done. */
    OK(0),
    /** There is no such key, entry or commit. */
    NOT_FOUND(1),
    /** The key has another value than was expected. */
    NOT_SWAPPED(2),
    /** The buffer is too small for the next entry. */
    BUFFER_TOO_SMALL(3),
    /** An argument or option is not valid: a mistake of the caller. */
    INVALID(4),
    /** The operating system refused an operation. */
    IO(5),
    /** No space left. Acknowledged data is safe, reads continue. */
    NO_SPACE(6),
    /** Bytes on disk are not what was written. */
    CORRUPT(7),
    /** A file was written by a newer version of Esker. */
    UNSUPPORTED_VERSION(8),
    /** Encrypted files cannot be read, or files that should be encrypted are not. */
    ENCRYPTION(9),
    /** The directory holds no database, or an unfinished one. */
    NO_DATABASE(10),
    /** Another process, or another object in this one, has the database open. */
    LOCKED(11),
    /** The database was opened to read it. */
    READ_ONLY(12),
    /** Another commit has changed what the transaction wrote or read: run it again. */
    CONFLICT(13),
    /** The transaction waits in a cycle of locks: run it again. */
    DEADLOCK(14),
    /** A lock or turn was not free in time. */
    LOCK_TIMEOUT(15),
    /** A failure has stopped writes; reads still work. Open the database again. */
    POISONED(16),
    /** The key is longer than 65,535 bytes, or the value longer than 4 GiB - 1. */
    TOO_LONG(17),
    /** There is no keyspace of this name, or it was dropped. */
    KEYSPACE_NOT_FOUND(18),
    /** There is a keyspace of this name already. */
    KEYSPACE_EXISTS(19),
    /** A merge operator refused an operand or value, or is missing. */
    MERGE(20),
    /** The change feed has no longer what was asked for, or never had. */
    GONE(21),
    /** The database has no change feed: open it with {@link Options#feed}. */
    NO_FEED(22),
    /** The reader of the change feed knows of commits that this database does not have. */
    FEED_AHEAD(23),
    /** Something exists where a call would create a file or directory. */
    EXISTS(24),
    /** A bug: a thread or a function of the engine panicked. */
    PANICKED(25),
    /** This process was forked from the process that opened the database. */
    FORKED(26),
    /** The database, or the object that was used, is closed. */
    CLOSED(27),
    /** An error without a status of its own. */
    OTHER(28);

    private static final Status[] ALL = values();

    private final int number;

    Status(int number) {
        this.number = number;
    }

    /** The number in the C API. */
    int number() {
        return number;
    }

    static Status of(int number) {
        return number >= 0 && number < ALL.length ? ALL[number] : OTHER;
    }
}
