package dev.esker;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;

/**
 * An open database: an embedded, ordered, transactional key-value store.
 *
 * <pre>{@code
 *   try (var db = Esker.open("data")) {
 *       var users = db.keyspace("users");
 *       users.put(key, value);              // durable when it returns
 *       db.transact(t -> t.put(users, key, value));
 *   }
 * }</pre>
 *
 * <p>Any number of threads may use it. Closing it closes all objects that were made of it; their later calls
 * throw {@link ClosedException}.
 */
public final class Esker implements AutoCloseable {
    private static final int READ_ONLY = 4;
    private static final int WRITE_ONLY = 5;
    private static final int EXCLUSIVE_OF_TASK = 6;
    /** After this many conflicts a transaction excludes others. */
    private static final int ATTEMPTS_SHARED = 8;

    final Handle handle;

    Esker(long address) {
        handle = Handle.shared("database", address, Native.CLOSE, null);
        handle.freeWith(this);
    }

    /** Opens the database in a directory, and creates it if it is missing. */
    public static Esker open(String directory) {
        return options().open(directory);
    }

    /** Opens the database in a directory, and creates it if it is missing. */
    public static Esker open(Path directory) {
        return options().open(directory);
    }

    /** Opens a database in memory, which ends when it is closed. */
    public static Esker openInMemory() {
        return options().openInMemory();
    }

    /** Returns options, which open a database. */
    public static Options options() {
        return new Options();
    }

    /** Returns the version of the native library. */
    public static String version() {
        return Native.text(Native.result(Native.VERSION));
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

    /** A call with the database and one more argument. */
    private void run(MethodHandle function, String text) {
        Scratch s = begin();
        try {
            long argument = s.text(text);
            s.check(Waits.call(() -> Native.call(function, handle.address(), argument, s.error)));
        } finally {
            end(s);
        }
    }

    private void run(MethodHandle function) {
        Scratch s = begin();
        try {
            s.check(Waits.call(() -> Native.call(function, handle.address(), s.error)));
        } finally {
            end(s);
        }
    }

    /** Returns the keyspace of a name, and creates it if it is missing. "default" always exists. */
    public Keyspace keyspace(String name) {
        return keyspace(Native.KEYSPACE_OPEN, name);
    }

    /** Returns the keyspace of a name, if there is one. */
    public Optional<Keyspace> findKeyspace(String name) {
        try {
            return Optional.of(keyspace(Native.KEYSPACE_FIND, name));
        } catch (KeyspaceNotFoundException e) {
            return Optional.empty();
        }
    }

    private Keyspace keyspace(MethodHandle function, String name) {
        Scratch s = begin();
        try {
            long argument = s.text(name);
            s.check(Waits.call(() -> Native.call(function, handle.address(), argument, s.out, s.error)));
            return new Keyspace(this, Native.getLong(s.out));
        } finally {
            end(s);
        }
    }

    /** Drops a keyspace with all its entries. */
    public void dropKeyspace(String name) {
        run(Native.KEYSPACE_DROP, name);
    }

    /** Renames a keyspace. */
    public void renameKeyspace(String from, String to) {
        Scratch s = begin();
        try {
            long old = s.text(from);
            long name = s.text(to);
            s.check(Waits.call(() -> Native.call(
                    Native.KEYSPACE_RENAME, handle.address(), old, name, s.error)));
        } finally {
            end(s);
        }
    }

    /** Returns the names of all keyspaces, in order. */
    public List<String> keyspaceNames() {
        List<String> names = new ArrayList<>();
        Upcalls.run(Upcalls.NAME, Native.KEYSPACE_NAMES, this, (name, figure) -> names.add(name));
        return names;
    }

    /** Returns the figures of the database: sizes, counts and times, as `esker stats` shows them. */
    public Map<String, Double> stats() {
        Map<String, Double> figures = new LinkedHashMap<>();
        Upcalls.run(Upcalls.FIGURE, Native.STATS, this, figures::put);
        return figures;
    }

    /** The database's own keyspaces can be used in its transactions. */
    Keyspace own(Keyspace keyspace) {
        if (keyspace.db != this) {
            throw new InvalidException("the keyspace belongs to another database");
        }
        return keyspace;
    }

    /** Begins a transaction with the isolation of the database. */
    public Transaction beginTransaction() {
        return beginTransaction(Isolation.DEFAULT);
    }

    /** Begins a transaction. */
    public Transaction beginTransaction(Isolation isolation) {
        boolean isExclusive = isolation == Isolation.EXCLUSIVE;
        return new Transaction(this, beginTxn("transaction", isolation.number()), isExclusive);
    }

    /** Returns the present state, to read it. */
    public Snapshot snapshot() {
        return new Snapshot(this, beginTxn("snapshot", READ_ONLY));
    }

    /** Begins a batch of writes. */
    public Batch batch() {
        return new Batch(this, beginTxn("batch", WRITE_ONLY));
    }

    private Handle beginTxn(String what, int kind) {
        Scratch s = begin();
        try {
            // Virtual threads share threads: the library would let writes of others in this one pass.
            boolean isExclusive = kind == Isolation.EXCLUSIVE.number();
            int nativeKind = isExclusive && Thread.currentThread().isVirtual() ? EXCLUSIVE_OF_TASK : kind;
            IntSupplier call = () -> Native.call(Native.BEGIN, handle.address(), nativeKind, s.out, s.error);
            s.check(isExclusive ? Waits.callNow(call) : call.getAsInt());
            long address = Native.getLong(s.out);
            return kind == READ_ONLY
                    ? Handle.shared(what, address, Native.TXN_FREE, handle)
                    : Handle.exclusive(what, address, Native.TXN_FREE, handle);
        } finally {
            end(s);
        }
    }

    /**
     * A function that reads and writes in a transaction.
     *
     * @param <X> what it may throw
     */
    @FunctionalInterface
    public interface Action<X extends Exception> {
        /** Runs in a transaction. It may run several times. */
        void run(Transaction transaction) throws X;
    }

    /**
     * A function that reads and writes in a transaction and returns a result.
     *
     * @param <T> the result
     * @param <X> what it may throw
     */
    @FunctionalInterface
    public interface Call<T, X extends Exception> {
        /** Runs in a transaction. It may run several times. */
        T run(Transaction transaction) throws X;
    }

    /**
     * Runs a function in a transaction and commits it. After a conflict the function runs again, so it must
     * have no other effects. An exception rolls back and is passed on.
     */
    public <X extends Exception> void transact(Action<X> action) throws X {
        this.<Void, X>transactResult(Isolation.DEFAULT, t -> {
            action.run(t);
            return null;
        });
    }

    /** As {@link #transact}, with the result of the function. */
    public <T, X extends Exception> T transactResult(Call<T, X> call) throws X {
        return transactResult(Isolation.DEFAULT, call);
    }

    /** As {@link #transact}, with an isolation and the result of the function. */
    public <T, X extends Exception> T transactResult(Isolation isolation, Call<T, X> call) throws X {
        for (int attempt = 1;; attempt++) {
            Isolation now = attempt > ATTEMPTS_SHARED ? Isolation.EXCLUSIVE : isolation;
            try (Transaction transaction = beginTransaction(now)) {
                T result = call.run(transaction);
                transaction.commit();
                return result;
            } catch (ConflictException e) {
                if (now == Isolation.EXCLUSIVE && e.status() == Status.CONFLICT) {
                    throw e; // It cannot be of this transaction.
                }
            }
            long longest = Math.min(50_000L << Math.min(attempt, 10), 10_000_000);
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(longest));
        }
    }

    /** Returns the number of the newest commit that readers see. */
    public long newestCommit() {
        Scratch s = begin();
        try {
            Native.setLong(s.out, 0);
            Native.run(Native.NEWEST_COMMIT, handle.address(), s.out);
            return Native.getLong(s.out);
        } finally {
            end(s);
        }
    }

    /** Begins to read the commits after a commit; 0 is before the first. See {@link Options#feed}. */
    public Feed feed(long after) {
        Options.positive(after, "the number of the commit");
        Scratch s = begin();
        try {
            s.check(Native.call(Native.FEED_AFTER, handle.address(), after, s.out, s.error));
            long address = Native.getLong(s.out);
            return new Feed(this, Handle.exclusive("feed", address, Native.FEED_FREE, handle));
        } finally {
            end(s);
        }
    }

    /** Copies the database as of now into a new directory, which is a database of its own. */
    public void checkpoint(Path directory) {
        run(Native.CHECKPOINT, directory.toString());
    }

    /** Reads all files and checks their checksums and structure. Throws at the first damage. */
    public void check() {
        run(Native.CHECK);
    }

    /** Compacts the whole database into one run without garbage. Takes long for a large one. */
    public void compact() {
        run(Native.COMPACT);
    }

    /** Makes all earlier commits durable. */
    public void sync() {
        run(Native.SYNC);
    }

    /** Makes all commits durable and closes the database and all that was made of it. */
    @Override
    public void close() {
        handle.close();
        EskerException failure = handle.takeFailure();
        if (failure != null) {
            throw failure;
        }
    }

    /** Functions that the library calls. They run within the call of {@code run}, in its thread. */
    static final class Upcalls {
        /** Takes a name, and a figure or 0. */
        interface Taker {
            void take(String name, double figure);
        }

        static final MemorySegment NAME = stub("name", void.class, MemorySegment.class, MemorySegment.class);
        static final MemorySegment FIGURE =
                stub("figure", void.class, MemorySegment.class, MemorySegment.class, double.class);

        private static final ThreadLocal<Taker> TAKER = new ThreadLocal<>();
        private static final ThreadLocal<Throwable> FAILURE = new ThreadLocal<>();

        private Upcalls() {}

        private static MemorySegment stub(String name, Class<?> result, Class<?>... arguments) {
            try {
                MethodHandle target = MethodHandles.lookup()
                        .findStatic(Upcalls.class, name, MethodType.methodType(result, arguments));
                FunctionDescriptor type = FunctionDescriptor.ofVoid(ValueLayout.ADDRESS, ValueLayout.ADDRESS);
                if (arguments.length == 3) {
                    type = type.appendArgumentLayouts(ValueLayout.JAVA_DOUBLE);
                }
                return Linker.nativeLinker().upcallStub(target, type, Arena.global());
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }

        static void name(MemorySegment context, MemorySegment name) {
            figure(context, name, 0);
        }

        static void figure(MemorySegment context, MemorySegment name, double figure) {
            // An exception that leaves an upcall ends the process.
            try {
                TAKER.get().take(Native.text(name.address()), figure);
            } catch (Throwable e) {
                FAILURE.set(e);
            }
        }

        static void run(MemorySegment stub, MethodHandle function, Esker db, Taker taker) {
            Scratch s = db.begin();
            TAKER.set(taker);
            try {
                s.check(Native.call(function, db.handle.address(), stub.address(), 0L, s.error));
                if (FAILURE.get() != null) {
                    throw new IllegalStateException(FAILURE.get());
                }
            } finally {
                TAKER.remove();
                FAILURE.remove();
                db.end(s);
            }
        }
    }
}
