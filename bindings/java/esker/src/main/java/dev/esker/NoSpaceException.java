package dev.esker;

/** No space is left. Acknowledged data is safe, and reads continue. */
public final class NoSpaceException extends EskerException {
    private static final long serialVersionUID = 1;

    NoSpaceException(Failure failure) {
        super(failure);
    }
}
