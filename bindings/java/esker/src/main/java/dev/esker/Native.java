package dev.esker;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/**
 * The functions of the C API, as esker.h declares them.
 *
 * <p>Addresses are passed as numbers, because all of them point to memory whose lifetime {@link Handle} and
 * {@link Scratch} control. Structs that C takes by value are passed as segments.
 */
final class Native {
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;
    /** An address, or a number of 64 bits. */
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;
    private static final ValueLayout.OfBoolean BOOL = ValueLayout.JAVA_BOOLEAN;

    /** esker_slice and esker_buffer: an address and a length. */
    static final MemoryLayout SLICE = MemoryLayout.structLayout(LONG, LONG);
    /** esker_range: two slices. */
    static final MemoryLayout RANGE = MemoryLayout.structLayout(LONG, LONG, LONG, LONG);
    /** esker_swap: two slices. */
    static final MemoryLayout SWAP_VALUES = MemoryLayout.structLayout(LONG, LONG, LONG, LONG);

    /** All memory, for reads at addresses that the library returned. */
    static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final SymbolLookup LIBRARY = Library.load();

    // Functions with few calls, by shape. They are called through `call`.
    static final MethodHandle OPEN = status("esker_open", LONG, LONG, LONG, LONG);
    static final MethodHandle OPEN_IN_MEMORY = status("esker_open_in_memory", LONG, LONG, LONG);
    static final MethodHandle CLOSE = status("esker_close", LONG, LONG);
    static final MethodHandle SYNC = status("esker_sync", LONG, LONG);
    static final MethodHandle COMPACT = status("esker_compact", LONG, LONG);
    static final MethodHandle CHECKPOINT = status("esker_checkpoint", LONG, LONG, LONG);
    static final MethodHandle CHECK = status("esker_check", LONG, LONG);
    static final MethodHandle KEYSPACE_NAMES = status("esker_keyspace_names", LONG, LONG, LONG, LONG);
    static final MethodHandle STATS = status("esker_stats", LONG, LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_OPEN = status("esker_keyspace_open", LONG, LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_FIND = status("esker_keyspace_find", LONG, LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_DROP = status("esker_keyspace_drop", LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_RENAME = status("esker_keyspace_rename", LONG, LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_NAME = status("esker_keyspace_name", LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_ID = status("esker_keyspace_id", LONG);
    static final MethodHandle KEYSPACE_SET_OPERATOR =
            status("esker_keyspace_set_merge_operator", LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_SET_TTL = status("esker_keyspace_set_default_ttl", LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_SET_BYTES = status("esker_keyspace_set_bytes_max", LONG, LONG, LONG);
    static final MethodHandle KEYSPACE_WITH_DURABILITY =
            status("esker_keyspace_with_durability", LONG, INT, LONG, LONG);
    static final MethodHandle NEWEST_COMMIT = function("esker_newest_commit", LONG, LONG);
    static final MethodHandle BEGIN = status("esker_begin", LONG, INT, LONG, LONG);
    static final MethodHandle COMMIT = status("esker_commit", LONG, INT, LONG, LONG);
    static final MethodHandle SAVEPOINT = status("esker_savepoint", LONG, LONG, LONG);
    static final MethodHandle ROLLBACK_TO = status("esker_rollback_to", LONG, LONG, LONG);
    static final MethodHandle LOCK = status("esker_lock", LONG, LONG, SLICE, BOOL, LONG);
    static final MethodHandle LEN = status("esker_len", LONG, LONG, LONG, LONG);
    static final MethodHandle APPROXIMATE_SIZE = status("esker_approximate_size", LONG, RANGE, LONG, LONG);
    static final MethodHandle FEED_AFTER = status("esker_feed_after", LONG, LONG, LONG, LONG);
    static final MethodHandle FEED_NEXT = status("esker_feed_next", LONG, LONG, LONG, LONG);
    static final MethodHandle FEED_CHANGE = status("esker_feed_change", LONG, LONG, LONG);
    static final MethodHandle SET_DURABILITY = status("esker_options_set_durability", LONG, INT, LONG);
    static final MethodHandle SET_KEY_FILE = status("esker_options_set_key_file", LONG, LONG, LONG);
    static final MethodHandle SET_MEMORY = function("esker_options_set_memory", LONG, LONG);
    static final MethodHandle SET_BLOBS = function("esker_options_set_blobs_from", LONG, LONG);
    static final MethodHandle SET_LOCK_TIMEOUT = function("esker_options_set_lock_timeout", LONG, LONG);
    static final MethodHandle SET_FEED = function("esker_options_set_feed", LONG, LONG, LONG);
    static final MethodHandle SET_SERIALIZABLE = function("esker_options_set_serializable", LONG, BOOL);
    static final MethodHandle SET_CREATE = function("esker_options_set_create_if_missing", LONG, BOOL);
    static final MethodHandle SET_ERROR_IF_EXISTS = function("esker_options_set_error_if_exists", LONG, BOOL);
    static final MethodHandle SET_READ_ONLY = function("esker_options_set_read_only", LONG, BOOL);
    static final MethodHandle SET_COMPRESSION = function("esker_options_set_compression", LONG, BOOL);
    static final MethodHandle OPTIONS_FREE = function("esker_options_free", LONG);
    static final MethodHandle KEYSPACE_FREE = function("esker_keyspace_free", LONG);
    static final MethodHandle TXN_FREE = function("esker_txn_free", LONG);
    static final MethodHandle ITER_FREE = function("esker_iter_free", LONG);
    static final MethodHandle FEED_FREE = function("esker_feed_free", LONG);
    static final MethodHandle ITER_SET_LIMIT = function("esker_iter_set_limit", LONG, LONG);
    static final MethodHandle ERROR_FREE = function("esker_error_free", LONG);
    static final MethodHandle VALUE_FREE = function("esker_value_free", LONG);
    static final MethodHandle OPTIONS_NEW = returning("esker_options_new");
    static final MethodHandle VERSION = returning("esker_version");
    static final MethodHandle ERROR_TEXT = returning("esker_error_text", LONG);
    static final MethodHandle ERROR_FILE = returning("esker_error_file", LONG);
    static final MethodHandle TXN_SEQNO = returning("esker_txn_seqno", LONG);
    static final MethodHandle ERROR_ERRNO = status("esker_error_errno", LONG);

    private static final MethodHandle ERROR_OFFSET = find("esker_error_offset", BOOL, LONG, LONG);
    private static final MethodHandle GET = status("esker_get", LONG, LONG, SLICE, LONG, LONG);
    private static final MethodHandle GET_INTO =
            status("esker_get_into", LONG, LONG, SLICE, SLICE, LONG, LONG);
    private static final MethodHandle GET_MANY =
            status("esker_get_many", LONG, LONG, LONG, LONG, LONG, LONG);
    private static final MethodHandle CONTAINS = status("esker_contains", LONG, LONG, SLICE, LONG);
    private static final MethodHandle TTL = status("esker_ttl", LONG, LONG, SLICE, LONG, LONG);
    private static final MethodHandle PUT = status("esker_put", LONG, LONG, SLICE, SLICE, LONG);
    private static final MethodHandle PUT_TTL =
            status("esker_put_with_ttl", LONG, LONG, SLICE, SLICE, LONG, LONG);
    private static final MethodHandle MERGE = status("esker_merge", LONG, LONG, SLICE, SLICE, LONG);
    private static final MethodHandle DELETE = status("esker_delete", LONG, LONG, SLICE, LONG);
    private static final MethodHandle DELETE_RANGE = status("esker_delete_range", LONG, LONG, RANGE, LONG);
    private static final MethodHandle DELETE_PREFIX = status("esker_delete_prefix", LONG, LONG, SLICE, LONG);
    private static final MethodHandle REMOVE = status("esker_remove", LONG, LONG, SLICE, LONG, LONG);
    private static final MethodHandle SWAP =
            status("esker_compare_and_swap", LONG, LONG, SLICE, SWAP_VALUES, LONG, LONG);
    private static final MethodHandle EXPIRE = status("esker_expire", LONG, LONG, SLICE, LONG, LONG);
    private static final MethodHandle ADD = status("esker_fetch_add", LONG, LONG, SLICE, LONG, LONG, LONG);
    private static final MethodHandle ITER_NEW =
            status("esker_iter_new", LONG, LONG, RANGE, INT, LONG, LONG);
    private static final MethodHandle ITER_PREFIX =
            status("esker_iter_prefix", LONG, LONG, SLICE, INT, LONG, LONG);
    private static final MethodHandle ITER_FILL = status("esker_iter_fill", LONG, SLICE, LONG, LONG, LONG);

    private Native() {}

    private static MethodHandle find(String name, MemoryLayout result, MemoryLayout... arguments) {
        MemorySegment symbol = LIBRARY.find(name).orElseThrow(
                () -> new UnsatisfiedLinkError("the library of Esker has no function " + name));
        FunctionDescriptor type = result == null
                ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(result, arguments);
        return Linker.nativeLinker().downcallHandle(symbol, type);
    }

    /** A function that returns esker_status or another number of 32 bits. */
    private static MethodHandle status(String name, MemoryLayout... arguments) {
        return find(name, INT, arguments);
    }

    private static MethodHandle function(String name, MemoryLayout... arguments) {
        return find(name, null, arguments);
    }

    /** A function that returns an address or a number of 64 bits. */
    private static MethodHandle returning(String name, MemoryLayout... arguments) {
        return find(name, LONG, arguments);
    }

    /** A downcall throws nothing; a wrong type of a call is a bug of this class. */
    private static RuntimeException bug(Throwable failure) {
        if (failure instanceof Error error) {
            throw error;
        }
        return new IllegalStateException(failure);
    }

    static void run(MethodHandle function, long a) {
        try {
            function.invokeExact(a);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static void run(MethodHandle function, long a, long b) {
        try {
            function.invokeExact(a, b);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static void run(MethodHandle function, long a, long b, long c) {
        try {
            function.invokeExact(a, b, c);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static void run(MethodHandle function, long a, boolean b) {
        try {
            function.invokeExact(a, b);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static long result(MethodHandle function) {
        try {
            return (long) function.invokeExact();
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static long result(MethodHandle function, long a) {
        try {
            return (long) function.invokeExact(a);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int call(MethodHandle function, long a) {
        try {
            return (int) function.invokeExact(a);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int call(MethodHandle function, long a, long b) {
        try {
            return (int) function.invokeExact(a, b);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int call(MethodHandle function, long a, long b, long c) {
        try {
            return (int) function.invokeExact(a, b, c);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int call(MethodHandle function, long a, long b, long c, long d) {
        try {
            return (int) function.invokeExact(a, b, c, d);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int call(MethodHandle function, long a, int b, long c) {
        try {
            return (int) function.invokeExact(a, b, c);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int call(MethodHandle function, long a, int b, long c, long d) {
        try {
            return (int) function.invokeExact(a, b, c, d);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static boolean errorOffset(long error, long offset) {
        try {
            return (boolean) ERROR_OFFSET.invokeExact(error, offset);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int approximateSize(long keyspace, MemorySegment range, long size, long error) {
        try {
            return (int) APPROXIMATE_SIZE.invokeExact(keyspace, range, size, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int lock(long keyspace, long txn, MemorySegment key, boolean shared, long error) {
        try {
            return (int) LOCK.invokeExact(keyspace, txn, key, shared, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int get(long keyspace, long txn, MemorySegment key, long value, long error) {
        try {
            return (int) GET.invokeExact(keyspace, txn, key, value, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int getInto(
            long keyspace, long txn, MemorySegment key, MemorySegment buffer, long len, long error) {
        try {
            return (int) GET_INTO.invokeExact(keyspace, txn, key, buffer, len, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int getMany(long keyspace, long txn, long keys, long count, long values, long error) {
        try {
            return (int) GET_MANY.invokeExact(keyspace, txn, keys, count, values, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int contains(long keyspace, long txn, MemorySegment key, long error) {
        try {
            return (int) CONTAINS.invokeExact(keyspace, txn, key, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int ttl(long keyspace, long txn, MemorySegment key, long milliseconds, long error) {
        try {
            return (int) TTL.invokeExact(keyspace, txn, key, milliseconds, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int put(long keyspace, long txn, MemorySegment key, MemorySegment value, long error) {
        try {
            return (int) PUT.invokeExact(keyspace, txn, key, value, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int putTtl(long keyspace, long txn, MemorySegment key, MemorySegment value, long ms, long error) {
        try {
            return (int) PUT_TTL.invokeExact(keyspace, txn, key, value, ms, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int merge(long keyspace, long txn, MemorySegment key, MemorySegment operand, long error) {
        try {
            return (int) MERGE.invokeExact(keyspace, txn, key, operand, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int delete(long keyspace, long txn, MemorySegment key, long error) {
        try {
            return (int) DELETE.invokeExact(keyspace, txn, key, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int deleteRange(long keyspace, long txn, MemorySegment range, long error) {
        try {
            return (int) DELETE_RANGE.invokeExact(keyspace, txn, range, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int deletePrefix(long keyspace, long txn, MemorySegment prefix, long error) {
        try {
            return (int) DELETE_PREFIX.invokeExact(keyspace, txn, prefix, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int remove(long keyspace, long txn, MemorySegment key, long old, long error) {
        try {
            return (int) REMOVE.invokeExact(keyspace, txn, key, old, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int compareAndSwap(
            long keyspace, long txn, MemorySegment key, MemorySegment swap, long old, long error) {
        try {
            return (int) SWAP.invokeExact(keyspace, txn, key, swap, old, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int add(long keyspace, long txn, MemorySegment key, long by, long old, long error) {
        try {
            return (int) ADD.invokeExact(keyspace, txn, key, by, old, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int expire(long keyspace, long txn, MemorySegment key, long ms, long error) {
        try {
            return (int) EXPIRE.invokeExact(keyspace, txn, key, ms, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int iterNew(long keyspace, long txn, MemorySegment range, int flags, long iter, long error) {
        try {
            return (int) ITER_NEW.invokeExact(keyspace, txn, range, flags, iter, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int iterPrefix(long keyspace, long txn, MemorySegment prefix, int flags, long iter, long error) {
        try {
            return (int) ITER_PREFIX.invokeExact(keyspace, txn, prefix, flags, iter, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    static int iterFill(long iter, MemorySegment buffer, long count, long bytes, long error) {
        try {
            return (int) ITER_FILL.invokeExact(iter, buffer, count, bytes, error);
        } catch (Throwable e) {
            throw bug(e);
        }
    }

    /** Copies bytes of the library to the heap. */
    static byte[] bytes(long address, long length) {
        byte[] copy = new byte[length(length)];
        MemorySegment.copy(MEMORY, ValueLayout.JAVA_BYTE, address, copy, 0, copy.length);
        return copy;
    }

    /** The length of an array for so large a value. */
    static int length(long length) {
        if (length < 0 || length > Integer.MAX_VALUE - 8) {
            throw new InvalidException("a value of " + length + " bytes fits into no array: use lend");
        }
        return (int) length;
    }

    /** Reads a text that ends with a zero byte. */
    static String text(long address) {
        return MEMORY.getString(address);
    }

    static long getLong(long address) {
        return MEMORY.get(ValueLayout.JAVA_LONG_UNALIGNED, address);
    }

    static int getInt(long address) {
        return MEMORY.get(ValueLayout.JAVA_INT_UNALIGNED, address);
    }

    static void setLong(long address, long number) {
        MEMORY.set(ValueLayout.JAVA_LONG_UNALIGNED, address, number);
    }
}
