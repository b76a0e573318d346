package dev.esker;

/** The database was opened to read it. */
public final class ReadOnlyException extends EskerException {
    private static final long serialVersionUID = 1;

    ReadOnlyException(Failure failure) {
        super(failure);
    }
}
