package dev.esker;

/** What a transaction sees of others that run at the same time. */
public enum Isolation {
    /** What the options of the database say. */
    DEFAULT(0),
    /** The transaction behaves as if no other ran at the same time. */
    SERIALIZABLE(1),
    /** The transaction reads a snapshot; this permits write skew. */
    SNAPSHOT(2),
    /** All other commits wait. The transaction has no conflicts. */
    EXCLUSIVE(3);

    private final int number;

    Isolation(int number) {
        this.number = number;
    }

    int number() {
        return number;
    }
}
