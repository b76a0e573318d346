package dev.esker;

/** The database, or the object that was used, is closed. */
public final class ClosedException extends EskerException {
    private static final long serialVersionUID = 1;

    ClosedException(String message) {
        super(new Failure(Status.CLOSED, message, null, -1, 0));
    }

    ClosedException(Failure failure) {
        super(failure);
    }
}
