package dev.esker;

import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.IntSupplier;

/** A keyspace, as of now or in a transaction. */
abstract class View implements ReadsWrites {
    private static final int OK = 0;
    private static final int NOT_FOUND = 1;
    private static final int BUFFER_TOO_SMALL = 3;
    /** esker_value: data, length, owner. */
    private static final int VALUE_SIZE = 24;
    /** UINT64_MAX, the lifetime of a key that does not expire. */
    private static final long FOREVER = -1;

    final Handle keyspace;
    /** Null: each call is for itself. */
    final Handle txn;
    /** Keeps the public objects reachable that own the handles. */
    private final Object owners;

    View(Handle keyspace, Handle txn, Object owners) {
        this.keyspace = keyspace;
        this.txn = txn;
        this.owners = owners;
    }

    /** Begins a call: {@link #end} must follow. */
    final Scratch begin() {
        keyspace.enter();
        if (txn != null) {
            try {
                txn.enter();
            } catch (ClosedException e) {
                keyspace.exit();
                throw e;
            }
        }
        return Scratch.take();
    }

    final void end(Scratch scratch) {
        scratch.give();
        if (txn != null) {
            txn.exit();
        }
        keyspace.exit();
        Reference.reachabilityFence(owners);
        Reference.reachabilityFence(this);
    }

    /** The handle that iterators are made below. */
    abstract Handle parent();

    /** Makes a call that writes. Within a transaction it does not wait. */
    private int write(IntSupplier call) {
        return txn == null ? Waits.call(call) : call.getAsInt();
    }

    final long txnAddress() {
        return txn == null ? 0 : txn.address();
    }

    @Override
    public byte[] get(byte[] key) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            // Most values fit into the memory that is left, which saves a second call.
            MemorySegment buffer = s.buffer();
            int status = Native.getInto(keyspace.address(), txnAddress(), name, buffer, s.out, s.error);
            if (status == OK) {
                return Native.bytes(s.bufferAddress(), Native.getLong(s.out));
            }
            if (status == BUFFER_TOO_SMALL) {
                status = Native.get(keyspace.address(), txnAddress(), name, s.value, s.error);
            }
            return value(s, status);
        } finally {
            end(s);
        }
    }

    private static byte[] value(Scratch s, int status) {
        s.check(status);
        return status == NOT_FOUND ? null : s.takeValue();
    }

    @Override
    public List<byte[]> getAll(List<byte[]> keys) {
        Scratch s = begin();
        try {
            int count = keys.size();
            long slices = s.allocate(16L * count);
            long values = s.allocate((long) VALUE_SIZE * count);
            int at = 0;
            for (byte[] key : keys) {
                Native.setLong(slices + 16L * at, s.copy(key));
                Native.setLong(slices + 16L * at + 8, key.length);
                at++;
            }
            s.check(Native.getMany(keyspace.address(), txnAddress(), slices, count, values, s.error));
            return taken(values, count);
        } finally {
            end(s);
        }
    }

    private static List<byte[]> taken(long values, int count) {
        List<byte[]> taken = new ArrayList<>(count);
        try {
            for (int i = 0; i < count; i++) {
                long data = Native.getLong(values + (long) VALUE_SIZE * i);
                long length = Native.getLong(values + (long) VALUE_SIZE * i + 8);
                taken.add(data == 0 ? null : Native.bytes(data, length));
            }
        } finally {
            for (int i = 0; i < count; i++) {
                Native.run(Native.VALUE_FREE, values + (long) VALUE_SIZE * i);
            }
        }
        return taken;
    }

    @Override
    public LentValue lend(byte[] key) {
        return lend(MemorySegment.ofArray(key));
    }

    @Override
    public LentValue lend(MemorySegment key) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            int status = Native.get(keyspace.address(), txnAddress(), name, s.value, s.error);
            s.check(status);
            if (status == NOT_FOUND) {
                return null;
            }
            return new LentValue(
                    Native.getLong(s.value), Native.getLong(s.value + 8), Native.getLong(s.value + 16));
        } finally {
            end(s);
        }
    }

    @Override
    public boolean containsKey(byte[] key) {
        Scratch s = begin();
        try {
            int status = Native.contains(keyspace.address(), txnAddress(), s.slice(s.first, key), s.error);
            s.check(status);
            return status == OK;
        } finally {
            end(s);
        }
    }

    @Override
    public Optional<Duration> ttl(byte[] key) {
        Scratch s = begin();
        try {
            int status = Native.ttl(keyspace.address(), txnAddress(), s.slice(s.first, key), s.out, s.error);
            s.check(status);
            long milliseconds = status == OK ? Native.getLong(s.out) : -1;
            // The largest number: it does not expire. Beyond Long.MAX_VALUE nothing does either.
            return milliseconds < 0 ? Optional.empty() : Optional.of(Duration.ofMillis(milliseconds));
        } finally {
            end(s);
        }
    }

    @Override
    public long size() {
        Scratch s = begin();
        try {
            s.check(Native.call(Native.LEN, keyspace.address(), txnAddress(), s.out, s.error));
            return Native.getLong(s.out);
        } finally {
            end(s);
        }
    }

    @Override
    public Scan<Entry> all() {
        return Scan.of(this, null, null, null);
    }

    @Override
    public Scan<Entry> range(byte[] from, byte[] to) {
        return Scan.of(this, from, to, null);
    }

    @Override
    public Scan<Entry> prefix(byte[] prefix) {
        return Scan.of(this, null, null, Objects.requireNonNull(prefix));
    }

    @Override
    public void put(byte[] key, byte[] value) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            MemorySegment data = s.slice(s.second, value);
            s.check(write(() -> Native.put(keyspace.address(), txnAddress(), name, data, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public void put(byte[] key, byte[] value, Duration ttl) {
        long milliseconds = Options.milliseconds(ttl, "the lifetime");
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            MemorySegment data = s.slice(s.second, value);
            s.check(write(() -> Native.putTtl(
                    keyspace.address(), txnAddress(), name, data, milliseconds, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public void put(MemorySegment key, MemorySegment value) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            MemorySegment data = s.slice(s.second, value);
            s.check(write(() -> Native.put(keyspace.address(), txnAddress(), name, data, s.error)));
        } finally {
            end(s);
            Reference.reachabilityFence(key);
            Reference.reachabilityFence(value);
        }
    }

    @Override
    public void merge(byte[] key, byte[] operand) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            MemorySegment data = s.slice(s.second, operand);
            s.check(write(() -> Native.merge(keyspace.address(), txnAddress(), name, data, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public void delete(byte[] key) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            s.check(write(() -> Native.delete(keyspace.address(), txnAddress(), name, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public void deleteRange(byte[] from, byte[] to) {
        Scratch s = begin();
        try {
            MemorySegment range = s.range(from, to);
            s.check(write(() -> Native.deleteRange(keyspace.address(), txnAddress(), range, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public void deletePrefix(byte[] prefix) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, prefix);
            s.check(write(() -> Native.deletePrefix(keyspace.address(), txnAddress(), name, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public byte[] remove(byte[] key) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            return value(s, write(() -> Native.remove(
                    keyspace.address(), txnAddress(), name, s.value, s.error)));
        } finally {
            end(s);
        }
    }

    @Override
    public long getAndAdd(byte[] key, long by) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            s.check(write(() -> Native.add(keyspace.address(), txnAddress(), name, by, s.out, s.error)));
            return Native.getLong(s.out);
        } finally {
            end(s);
        }
    }

    @Override
    public boolean expire(byte[] key, Duration ttl) {
        return expire(key, Options.milliseconds(ttl, "the lifetime"));
    }

    @Override
    public boolean persist(byte[] key) {
        return expire(key, FOREVER);
    }

    private boolean expire(byte[] key, long milliseconds) {
        Scratch s = begin();
        try {
            MemorySegment name = s.slice(s.first, key);
            int status = write(() -> Native.expire(
                    keyspace.address(), txnAddress(), name, milliseconds, s.error));
            s.check(status);
            return status == OK;
        } finally {
            end(s);
        }
    }
}
