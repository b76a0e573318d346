package dev.esker.bench;

import java.util.Random;

/** What a round writes and looks up. All bytes are random, so nothing can be compressed. */
final class Data {
    static final int KEY_BYTES = 16;
    static final int VALUE_BYTES = 100;

    private static final int VALUES = 16 * 1024;

    final byte[][] keys;
    private final byte[][] values = new byte[VALUES][VALUE_BYTES];
    private final Random random;

    Data(int items, long seed) {
        random = new Random(seed);
        keys = new byte[items][KEY_BYTES];
        for (byte[] key : keys) {
            random.nextBytes(key);
        }
        for (byte[] value : values) {
            random.nextBytes(value);
        }
    }

    byte[] key() {
        return keys[random.nextInt(keys.length)];
    }

    /** A random neighbour of a key, which no database has. */
    byte[] missing() {
        byte[] key = key().clone();
        key[KEY_BYTES - 1]++;
        return key;
    }

    byte[] value() {
        return values[random.nextInt(VALUES)];
    }
}
