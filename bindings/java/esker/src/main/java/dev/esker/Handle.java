package dev.esker;

import java.lang.invoke.MethodHandle;
import java.lang.ref.Cleaner;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A native object: when it may be used, and when it is freed.
 *
 * <pre>
 *   database &lt;- keyspaces, feeds, transactions, iterators &lt;- iterators of a transaction
 * </pre>
 *
 * <p>A call enters the handle, uses the address and exits. Closing refuses further calls, waits for those
 * that run, then frees the object, children first. Functions of the caller never run between enter and exit.
 *
 * <p>Some objects may be used by any number of threads: their calls count themselves in one of several
 * counters, so that threads do not contend. The others are used under a lock.
 */
final class Handle implements Runnable {
    static final Cleaner CLEANER = Cleaner.create();

    /** Number of counters, and their distance in numbers: a cache line. */
    private static final int STRIPES = 16;
    private static final int STRIDE = 16;

    private final String what;
    private final long address;
    private final MethodHandle free;
    private final Handle parent;
    /** Null if any number of threads may use the object. */
    private final ReentrantLock lock;
    private final AtomicIntegerArray calls;
    private final Set<Handle> children;
    private final AtomicBoolean isFreeing = new AtomicBoolean();
    private volatile boolean isClosed;
    private volatile boolean isFreed;
    private volatile EskerException failure;
    private Cleaner.Cleanable cleanable;

    private Handle(String what, long address, MethodHandle free, Handle parent, ReentrantLock lock) {
        this.what = what;
        this.address = address;
        this.free = free;
        this.parent = parent;
        this.lock = lock;
        this.calls = lock == null ? new AtomicIntegerArray(STRIPES * STRIDE) : null;
        this.children = free == Native.ITER_FREE || free == Native.KEYSPACE_FREE || free == Native.FEED_FREE
                ? Set.of() : ConcurrentHashMap.newKeySet();
        if (parent != null) {
            parent.children.add(this);
        }
    }

    /** A handle for any number of threads. The parent, if any, is entered. */
    static Handle shared(String what, long address, MethodHandle free, Handle parent) {
        return new Handle(what, address, free, parent, null);
    }

    /** A handle for one thread at a time. The parent is entered. */
    static Handle exclusive(String what, long address, MethodHandle free, Handle parent) {
        // What belongs to a transaction shares its lock.
        ReentrantLock lock = parent.lock == null ? new ReentrantLock() : parent.lock;
        return new Handle(what, address, free, parent, lock);
    }

    /** Frees the object when {@code owner} is no longer reachable. */
    Handle freeWith(Object owner) {
        cleanable = CLEANER.register(owner, this);
        return this;
    }

    /** Begins a call. */
    void enter() {
        if (lock != null) {
            lock.lock();
        } else {
            calls.getAndIncrement(stripe());
        }
        if (isClosed) {
            exit();
            throw new ClosedException("the " + what + " is closed");
        }
    }

    /** Ends a call, in the thread that began it. */
    void exit() {
        if (lock != null) {
            lock.unlock();
        } else {
            calls.getAndDecrement(stripe());
        }
    }

    private static int stripe() {
        return ((int) Thread.currentThread().threadId() & (STRIPES - 1)) * STRIDE;
    }

    /** The address, between enter and exit. */
    long address() {
        return address;
    }

    boolean isClosed() {
        return isClosed;
    }

    /** Closes the object. A second call waits for the first. */
    void close() {
        for (int round = 0; !tryClose(); round++) {
            pause(round);
        }
        if (cleanable != null) {
            cleanable.clean();
        }
    }

    /** Closes the object when its owner was forgotten. */
    @Override
    public void run() {
        for (int round = 0; !tryClose(); round++) {
            pause(round);
        }
    }

    /** The error of closing, once. */
    EskerException takeFailure() {
        EskerException taken = failure;
        failure = null;
        return taken;
    }

    /**
     * Refuses further calls, and frees the object if no call runs and its children are freed. Returns whether
     * it is freed.
     */
    private boolean tryClose() {
        if (isFreed) {
            return true;
        }
        isClosed = true;
        if (lock == null) {
            return tryFree(callsRunning() == 0);
        }
        boolean isIdle = lock.tryLock();
        try {
            return tryFree(isIdle);
        } finally {
            if (isIdle) {
                lock.unlock();
            }
        }
    }

    private boolean tryFree(boolean isIdle) {
        // In any case: a call that runs may wait for a child, such as the end of an exclusive transaction.
        children.forEach(Handle::tryClose);
        if (!isIdle || !children.isEmpty() || !isFreeing.compareAndSet(false, true)) {
            return isFreed;
        }
        if (free == Native.CLOSE) {
            closeDatabase();
        } else {
            Native.run(free, address);
        }
        isFreed = true;
        if (parent != null) {
            parent.children.remove(this);
        }
        return true;
    }

    private void closeDatabase() {
        Scratch scratch = Scratch.take();
        try {
            int status = Native.call(Native.CLOSE, address, scratch.error);
            if (status != 0) {
                failure = scratch.failure(status);
            }
        } finally {
            scratch.give();
        }
    }

    private int callsRunning() {
        int running = 0;
        for (int i = 0; i < STRIPES; i++) {
            running += calls.get(i * STRIDE);
        }
        return running;
    }

    private static void pause(int round) {
        if (round < 100) {
            Thread.onSpinWait();
        } else {
            LockSupport.parkNanos(100_000);
        }
    }
}
