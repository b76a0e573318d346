package dev.esker;

/** Another process, or another object in this process, has the database open. */
public final class LockedException extends EskerException {
    private static final long serialVersionUID = 1;

    LockedException(Failure failure) {
        super(failure);
    }
}
