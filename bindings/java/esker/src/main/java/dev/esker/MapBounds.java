package dev.esker;

import java.util.Arrays;

/**
 * The keys from {@code start} on, below {@code end}. Null: no bound.
 *
 * <p>An exclusive lower or inclusive upper bound is the key with a zero byte behind it: the next key.
 */
record MapBounds(byte[] start, byte[] end) {
    static final MapBounds ALL = new MapBounds(null, null);

    private static final int KEY_BYTES_MAX = 65_535;

    /** The first key that sorts behind a key. */
    static byte[] after(byte[] key) {
        int length = key.length;
        if (length < KEY_BYTES_MAX) {
            return Arrays.copyOf(key, length + 1);
        }
        // No key begins with one of the greatest length.
        while (length > 0 && key[length - 1] == (byte) 0xFF) {
            length--;
        }
        if (length == 0) {
            return Arrays.copyOf(key, KEY_BYTES_MAX + 1);
        }
        byte[] after = Arrays.copyOf(key, length);
        after[length - 1]++;
        return after;
    }

    boolean isAll() {
        return start == null && end == null;
    }

    boolean isEmpty() {
        return start != null && end != null && Arrays.compareUnsigned(start, end) >= 0;
    }

    boolean contains(byte[] key) {
        return (start == null || Arrays.compareUnsigned(start, key) <= 0)
                && (end == null || Arrays.compareUnsigned(key, end) < 0);
    }

    /** Returns the part of these bounds from a key on. Null: all. */
    MapBounds from(byte[] key) {
        boolean isHigher = key != null && (start == null || Arrays.compareUnsigned(key, start) > 0);
        return isHigher ? new MapBounds(key, end) : this;
    }

    /** Returns the part of these bounds below a key. Null: all. */
    MapBounds below(byte[] key) {
        boolean isLower = key != null && (end == null || Arrays.compareUnsigned(key, end) < 0);
        return isLower ? new MapBounds(start, key) : this;
    }

    /** Whether a bound of a part lies within these bounds. */
    boolean admits(byte[] bound) {
        return bound == null
                || (start == null || Arrays.compareUnsigned(start, bound) <= 0)
                && (end == null || Arrays.compareUnsigned(bound, end) <= 0);
    }
}
