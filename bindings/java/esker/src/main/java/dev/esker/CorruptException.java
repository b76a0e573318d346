package dev.esker;

/** Bytes on disk are not what was written: see {@link #file} and {@link #offset}. */
public final class CorruptException extends EskerException {
    private static final long serialVersionUID = 1;

    CorruptException(Failure failure) {
        super(failure);
    }
}
