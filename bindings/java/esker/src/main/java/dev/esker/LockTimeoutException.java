package dev.esker;

/** A lock of a key or the turn of an exclusive transaction was not free in time. */
public final class LockTimeoutException extends EskerException {
    private static final long serialVersionUID = 1;

    LockTimeoutException(Failure failure) {
        super(failure);
    }
}
