package dev.esker;

/** There is no keyspace of this name, or it was dropped. */
public final class KeyspaceNotFoundException extends EskerException {
    private static final long serialVersionUID = 1;

    KeyspaceNotFoundException(Failure failure) {
        super(failure);
    }
}
