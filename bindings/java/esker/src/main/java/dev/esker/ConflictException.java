package dev.esker;

/**
 * Another commit has changed what the transaction wrote or read, or it waits in a cycle of locks
 * ({@link Status#DEADLOCK}). Nothing was written: run the transaction again, as {@link Esker#transact} does.
 */
public final class ConflictException extends EskerException {
    private static final long serialVersionUID = 1;

    ConflictException(Failure failure) {
        super(failure);
    }
}
