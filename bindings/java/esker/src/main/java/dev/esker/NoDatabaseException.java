package dev.esker;

/** The directory holds no database. */
public final class NoDatabaseException extends EskerException {
    private static final long serialVersionUID = 1;

    NoDatabaseException(Failure failure) {
        super(failure);
    }
}
