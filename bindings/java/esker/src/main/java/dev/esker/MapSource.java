package dev.esker;

import java.util.AbstractMap.SimpleEntry;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;

/** What a map and its parts share: the keyspace and the codecs. Each update is one atomic swap. */
record MapSource<K, V>(Keyspace keyspace, Codec<K> keys, Codec<V> values) {
    Comparator<? super K> comparator() {
        return keys.comparator();
    }

    /** The bytes of a key. A key of another type is a {@link ClassCastException}. */
    @SuppressWarnings("unchecked")
    byte[] key(Object key) {
        return keys.encode((K) Objects.requireNonNull(key));
    }

    @SuppressWarnings("unchecked")
    byte[] value(Object value) {
        return values.encode((V) Objects.requireNonNull(value));
    }

    V decoded(byte[] value) {
        return value == null ? null : values.decode(value);
    }

    V get(byte[] key) {
        return decoded(keyspace.get(key));
    }

    /**
     * Replaces a value by what a function makes of it; null stands for no value. The function is called again
     * if another thread has changed the value meanwhile. Returns the value before.
     */
    byte[] update(byte[] key, Function<byte[], byte[]> function) {
        byte[] old = keyspace.get(key);
        while (true) {
            byte[] value = function.apply(old);
            // An unchanged value needs no commit.
            if (value == old) {
                return old;
            }
            Keyspace.Swap swap = keyspace.swap(key, old, value);
            if (swap.isSwapped()) {
                return old;
            }
            old = swap.old();
        }
    }

    /** Sets a key whose present value is equal to {@code expected} to a value; null removes it. */
    boolean replace(byte[] key, Object expected, byte[] value) {
        byte[] old = keyspace.get(key);
        while (old != null && (Arrays.equals(old, value(expected)) || decoded(old).equals(expected))) {
            Keyspace.Swap swap = keyspace.swap(key, old, value);
            if (swap.isSwapped()) {
                return true;
            }
            old = swap.old();
        }
        return false;
    }

    Scan<Entry> scan(MapBounds bounds, boolean isReverse) {
        // An empty range can have its bounds in the wrong order.
        Scan<Entry> scan = bounds.isEmpty()
                ? keyspace.all().limit(0) : keyspace.range(bounds.start(), bounds.end());
        return isReverse ? scan.reversed() : scan;
    }

    /** The first entry of a walk, or null. */
    Entry first(MapBounds bounds, boolean isReverse) {
        try (ScanIterator<Entry> walk = scan(bounds, isReverse).limit(1).iterator()) {
            return walk.hasNext() ? walk.next() : null;
        }
    }

    /** The first key of a walk, or null. */
    byte[] firstKey(MapBounds bounds, boolean isReverse) {
        try (ScanIterator<byte[]> walk = scan(bounds, isReverse).limit(1).keys().iterator()) {
            return walk.hasNext() ? walk.next() : null;
        }
    }

    /** Removes and returns the first entry of a walk. */
    Entry poll(MapBounds bounds, boolean isReverse) {
        while (true) {
            Entry entry = first(bounds, isReverse);
            if (entry == null || keyspace.compareAndSwap(entry.key(), entry.value(), null)) {
                return entry;
            }
        }
    }

    Map.Entry<K, V> entry(Entry entry) {
        return entry == null
                ? null : new SimpleImmutableEntry<>(keys.decode(entry.key()), values.decode(entry.value()));
    }

    /** An iterator that removes from the keyspace, and whose items a function makes. */
    <S, T> Iterator<T> iterator(ScanIterator<S> walk, Function<S, byte[]> keyOf, Function<S, T> make) {
        return new Iterator<>() {
            private byte[] last;

            @Override
            public boolean hasNext() {
                return walk.hasNext();
            }

            @Override
            public T next() {
                S item = walk.next();
                last = keyOf.apply(item);
                return make.apply(item);
            }

            @Override
            public void remove() {
                if (last == null) {
                    throw new IllegalStateException();
                }
                keyspace.delete(last);
                last = null;
            }
        };
    }

    Iterator<Map.Entry<K, V>> entries(MapBounds bounds, boolean isReverse) {
        return iterator(scan(bounds, isReverse).iterator(), Entry::key, this::writable);
    }

    Iterator<K> keys(MapBounds bounds, boolean isReverse) {
        return iterator(scan(bounds, isReverse).keys().iterator(), key -> key, keys::decode);
    }

    private Map.Entry<K, V> writable(Entry entry) {
        return new SimpleEntry<>(keys.decode(entry.key()), values.decode(entry.value())) {
            private static final long serialVersionUID = 1;

            @Override
            public V setValue(V value) {
                keyspace.put(entry.key(), values.encode(Objects.requireNonNull(value)));
                return super.setValue(value);
            }
        };
    }
}
