package dev.esker;

/** An argument or option is not valid: a mistake of the program. */
public final class InvalidException extends EskerException {
    private static final long serialVersionUID = 1;

    InvalidException(String message) {
        super(new Failure(Status.INVALID, message, null, -1, 0));
    }

    InvalidException(Failure failure) {
        super(failure);
    }
}
