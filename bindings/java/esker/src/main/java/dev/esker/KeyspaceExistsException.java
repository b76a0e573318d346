package dev.esker;

/** There is a keyspace of this name already. */
public final class KeyspaceExistsException extends EskerException {
    private static final long serialVersionUID = 1;

    KeyspaceExistsException(Failure failure) {
        super(failure);
    }
}
