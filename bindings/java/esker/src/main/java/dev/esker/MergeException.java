package dev.esker;

/** A merge operator refused an operand or value, or the keyspace has no operator. */
public final class MergeException extends EskerException {
    private static final long serialVersionUID = 1;

    MergeException(Failure failure) {
        super(failure);
    }
}
