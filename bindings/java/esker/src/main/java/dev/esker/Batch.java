package dev.esker;

/** Writes that have an effect together, without reads or conflicts. One thread at a time may use it. */
public final class Batch implements AutoCloseable {
    private final Esker db;
    private final Handle handle;

    Batch(Esker db, Handle handle) {
        this.db = db;
        this.handle = handle.freeWith(this);
    }

    /** Returns a keyspace to write to in this batch. */
    public Writes keyspace(Keyspace keyspace) {
        return new TxnView(db.own(keyspace), handle, this);
    }

    /** Sets a key to a value. */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        keyspace(keyspace).put(key, value);
    }

    /** Removes a key, whether it exists or not. */
    public void delete(Keyspace keyspace, byte[] key) {
        keyspace(keyspace).delete(key);
    }

    /** Commits with the durability of the database, and returns the number of the commit. */
    public long commit() {
        return commit(Durability.DEFAULT);
    }

    /** Commits, and returns the number of the commit. After an error the batch may be committed again. */
    public long commit(Durability durability) {
        return Transaction.commit(handle, durability, Waits::call, this);
    }

    /** Ends the batch; without a commit its writes have no effect. The second call does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
