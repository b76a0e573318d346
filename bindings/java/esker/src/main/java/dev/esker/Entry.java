package dev.esker;

import java.util.Arrays;
import java.util.Map;

/** A key and its value. Two entries are equal if their bytes are. */
public final class Entry implements Map.Entry<byte[], byte[]> {
    private final byte[] key;
    private final byte[] value;

    Entry(byte[] key, byte[] value) {
        this.key = key;
        this.value = value;
    }

    /** The key. */
    public byte[] key() {
        return key;
    }

    /** The value; empty in a scan of keys only. */
    public byte[] value() {
        return value;
    }

    @Override
    public byte[] getKey() {
        return key;
    }

    @Override
    public byte[] getValue() {
        return value;
    }

    @Override
    public byte[] setValue(byte[] value) {
        throw new UnsupportedOperationException("an entry is a copy: put the value");
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Entry entry
                && Arrays.equals(key, entry.key) && Arrays.equals(value, entry.value);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(key) ^ Arrays.hashCode(value);
    }

    @Override
    public String toString() {
        return new String(key, java.nio.charset.StandardCharsets.UTF_8) + "="
                + new String(value, java.nio.charset.StandardCharsets.UTF_8);
    }
}
