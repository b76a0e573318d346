package dev.esker;

import java.nio.file.Path;
import java.util.Optional;
import java.util.OptionalLong;

/** A call of the engine failed. Subclasses stand for what programs react to. */
public class EskerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final Status status;
    private final String file;
    private final long offset;
    private final int errno;

    /** What is known of a failure. An offset of -1: none. */
    record Failure(Status status, String message, String file, long offset, int errno) {}

    EskerException(Failure failure) {
        super(failure.message);
        this.status = failure.status;
        this.file = failure.file;
        this.offset = failure.offset;
        this.errno = failure.errno;
    }

    /** Takes an error of the library and frees it. {@code out} is memory for a result. */
    static EskerException of(int number, long error, long out) {
        Status status = Status.of(number);
        if (error == 0) {
            return of(new Failure(status, "Esker: " + status, null, -1, 0));
        }
        try {
            String text = Native.text(Native.result(Native.ERROR_TEXT, error));
            long file = Native.result(Native.ERROR_FILE, error);
            long offset = Native.errorOffset(error, out) ? Native.getLong(out) : -1;
            int errno = Native.call(Native.ERROR_ERRNO, error);
            return of(new Failure(status, text, file == 0 ? null : Native.text(file), offset, errno));
        } finally {
            Native.run(Native.ERROR_FREE, error);
        }
    }

    private static EskerException of(Failure failure) {
        return switch (failure.status) {
            case INVALID, TOO_LONG -> new InvalidException(failure);
            case CONFLICT, DEADLOCK -> new ConflictException(failure);
            case LOCK_TIMEOUT -> new LockTimeoutException(failure);
            case CORRUPT -> new CorruptException(failure);
            case LOCKED -> new LockedException(failure);
            case NO_SPACE -> new NoSpaceException(failure);
            case NO_DATABASE -> new NoDatabaseException(failure);
            case READ_ONLY -> new ReadOnlyException(failure);
            case KEYSPACE_NOT_FOUND -> new KeyspaceNotFoundException(failure);
            case KEYSPACE_EXISTS -> new KeyspaceExistsException(failure);
            case MERGE -> new MergeException(failure);
            case GONE -> new FeedGoneException(failure);
            case CLOSED -> new ClosedException(failure);
            default -> new EskerException(failure);
        };
    }

    /** What failed. */
    public final Status status() {
        return status;
    }

    /** The file or directory that the error is about. */
    public final Optional<Path> file() {
        return Optional.ofNullable(file).map(Path::of);
    }

    /** The position of damage in {@link #file}, in bytes. */
    public final OptionalLong offset() {
        return offset < 0 ? OptionalLong.empty() : OptionalLong.of(offset);
    }

    /** The number of the operating system's error, or 0. */
    public final int errno() {
        return errno;
    }
}
