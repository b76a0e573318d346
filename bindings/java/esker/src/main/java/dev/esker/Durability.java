package dev.esker;

/** What a commit waits for. */
public enum Durability {
    /** What the options of the database say. */
    DEFAULT(0),
    /** The disk: the commit survives a power loss. */
    SYNC(1),
    /** The operating system: a power loss can take the last 100 ms. */
    BUFFERED(2),
    /** Nothing: the end of the process can take the last commits. */
    NONE(3);

    private final int number;

    Durability(int number) {
        this.number = number;
    }

    int number() {
        return number;
    }
}
