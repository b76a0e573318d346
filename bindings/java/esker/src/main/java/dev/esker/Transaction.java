package dev.esker;

import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.util.function.IntSupplier;
import java.util.function.ToIntFunction;

/**
 * Reads and writes that belong together: all of them have an effect, or none.
 *
 * <p>Reads see the transaction's own writes and otherwise one state. One thread at a time may use a
 * transaction. Without a commit, closing it rolls it back.
 */
public final class Transaction implements AutoCloseable {
    private final Esker db;
    private final Handle handle;
    /** Whether calls of other threads may wait for the end of this transaction. */
    private boolean isAwaited;

    /** A state of a transaction to which it can return. */
    public static final class Savepoint {
        private final Transaction of;
        private final long number;

        private Savepoint(Transaction of, long number) {
            this.of = of;
            this.number = number;
        }
    }

    Transaction(Esker db, Handle handle, boolean isAwaited) {
        this.db = db;
        this.handle = handle.freeWith(this);
        this.isAwaited = isAwaited;
    }

    /** Returns a keyspace as this transaction sees and changes it. */
    public ReadsWrites keyspace(Keyspace keyspace) {
        return new TxnView(db.own(keyspace), handle, this);
    }

    /** Returns the value of a key, or null. */
    public byte[] get(Keyspace keyspace, byte[] key) {
        return keyspace(keyspace).get(key);
    }

    /** Sets a key to a value. */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        keyspace(keyspace).put(key, value);
    }

    /** Removes a key, whether it exists or not. */
    public void delete(Keyspace keyspace, byte[] key) {
        keyspace(keyspace).delete(key);
    }

    /** Returns a scan of the keys from {@code from} on, below {@code to}. Null: no bound. */
    public Scan<Entry> range(Keyspace keyspace, byte[] from, byte[] to) {
        return keyspace(keyspace).range(from, to);
    }

    /** Locks a key until the transaction ends: others that lock it wait. */
    public void lock(Keyspace keyspace, byte[] key) {
        lock(keyspace, key, false);
    }

    /** Locks a key until the transaction ends: others that lock it exclusively wait. */
    public void lockShared(Keyspace keyspace, byte[] key) {
        lock(keyspace, key, true);
    }

    private void lock(Keyspace keyspace, byte[] key, boolean isShared) {
        View view = new TxnView(db.own(keyspace), handle, this);
        Scratch s = view.begin();
        try {
            isAwaited = true;
            MemorySegment name = s.slice(s.first, key);
            s.check(Waits.callNow(() -> Native.lock(
                    keyspace.keyspace.address(), handle.address(), name, isShared, s.error)));
        } finally {
            view.end(s);
        }
    }

    /** Marks the present state. */
    public Savepoint savepoint() {
        Scratch s = begin();
        try {
            s.check(Native.call(Native.SAVEPOINT, handle.address(), s.out, s.error));
            return new Savepoint(this, Native.getLong(s.out));
        } finally {
            end(s);
        }
    }

    /** Undoes all writes since a savepoint. Later savepoints end; this one stays. */
    public void rollbackTo(Savepoint savepoint) {
        if (savepoint.of != this) {
            throw new InvalidException("the savepoint belongs to another transaction");
        }
        Scratch s = begin();
        try {
            s.check(Native.call(Native.ROLLBACK_TO, handle.address(), savepoint.number, s.error));
        } finally {
            end(s);
        }
    }

    /** Commits with the durability of the database, and returns the number of the commit. */
    public long commit() {
        return commit(Durability.DEFAULT);
    }

    /**
     * Commits, and returns the number of the commit. The transaction has ended then.
     *
     * @throws ConflictException nothing was written, and the transaction has ended: run all of it again
     * @throws EskerException other errors leave the transaction as it is: it may be committed again, for
     *     example once there is space
     */
    public long commit(Durability durability) {
        return commit(handle, durability, isAwaited ? Waits::callNow : Waits::call, this);
    }

    static long commit(
            Handle handle, Durability durability, ToIntFunction<IntSupplier> waits, Object owner) {
        boolean isOver = false;
        Scratch s = Scratch.take();
        try {
            handle.enter();
            try {
                int status = waits.applyAsInt(() -> Native.call(
                        Native.COMMIT, handle.address(), durability.number(), s.out, s.error));
                isOver = status == Status.OK.number() || status == Status.CONFLICT.number();
                s.check(status);
                return Native.getLong(s.out);
            } finally {
                handle.exit();
            }
        } finally {
            s.give();
            if (isOver) {
                handle.close();
            }
            Reference.reachabilityFence(owner);
        }
    }

    /** Ends the transaction without an effect. */
    public void rollback() {
        close();
    }

    /** Returns the number of the newest commit that the transaction reads. */
    public long seqno() {
        Scratch s = begin();
        try {
            return Native.result(Native.TXN_SEQNO, handle.address());
        } finally {
            end(s);
        }
    }

    private Scratch begin() {
        handle.enter();
        return Scratch.take();
    }

    private void end(Scratch s) {
        s.give();
        handle.exit();
        Reference.reachabilityFence(this);
    }

    /** Ends the transaction; without a commit its writes have no effect. The second call does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
