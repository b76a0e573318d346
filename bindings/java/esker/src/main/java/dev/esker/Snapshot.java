package dev.esker;

import java.lang.ref.Reference;

/**
 * One state of the database: a read-only transaction. Any number of threads may use it. Until it is closed it
 * keeps old versions of entries.
 */
public final class Snapshot implements AutoCloseable {
    private final Esker db;
    private final Handle handle;

    Snapshot(Esker db, Handle handle) {
        this.db = db;
        this.handle = handle.freeWith(this);
    }

    /** Returns a keyspace as it is in this state. */
    public Reads keyspace(Keyspace keyspace) {
        return new TxnView(db.own(keyspace), handle, this);
    }

    /** Returns the value of a key, or null. */
    public byte[] get(Keyspace keyspace, byte[] key) {
        return keyspace(keyspace).get(key);
    }

    /** Returns the number of the newest commit in this state. */
    public long seqno() {
        handle.enter();
        try {
            return Native.result(Native.TXN_SEQNO, handle.address());
        } finally {
            handle.exit();
            Reference.reachabilityFence(this);
        }
    }

    /** Frees the snapshot. The second call does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
