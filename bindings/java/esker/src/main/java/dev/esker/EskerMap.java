package dev.esker;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableSet;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.function.BiFunction;
import java.util.function.Function;

/** A keyspace, or a range of it in either direction, as a map. */
final class EskerMap<K, V> extends AbstractMap<K, V> implements ConcurrentNavigableMap<K, V> {
    private final MapSource<K, V> source;
    private final MapBounds bounds;
    private final boolean isDescending;

    EskerMap(MapSource<K, V> source, MapBounds bounds, boolean isDescending) {
        this.source = source;
        this.bounds = bounds;
        this.isDescending = isDescending;
    }

    private byte[] writable(Object key) {
        byte[] bytes = source.key(key);
        if (!bounds.contains(bytes)) {
            throw new IllegalArgumentException("the key is not in the range of this map");
        }
        return bytes;
    }

    @Override
    public int size() {
        long size = bounds.isAll() ? source.keyspace().size() : source.scan(bounds, false).count();
        return (int) Math.min(size, Integer.MAX_VALUE);
    }

    @Override
    public boolean isEmpty() {
        return source.firstKey(bounds, false) == null;
    }

    @Override
    public boolean containsKey(Object key) {
        byte[] bytes = source.key(key);
        return bounds.contains(bytes) && source.keyspace().containsKey(bytes);
    }

    @Override
    public boolean containsValue(Object value) {
        return super.containsValue(Objects.requireNonNull(value));
    }

    @Override
    public V get(Object key) {
        byte[] bytes = source.key(key);
        return bounds.contains(bytes) ? source.get(bytes) : null;
    }

    @Override
    public V put(K key, V value) {
        byte[] bytes = source.value(value);
        return source.decoded(source.update(writable(key), old -> bytes));
    }

    @Override
    public V remove(Object key) {
        byte[] bytes = source.key(key);
        return bounds.contains(bytes) ? source.decoded(source.keyspace().remove(bytes)) : null;
    }

    @Override
    public void clear() {
        if (!bounds.isEmpty()) {
            source.keyspace().deleteRange(bounds.start(), bounds.end());
        }
    }

    @Override
    public V putIfAbsent(K key, V value) {
        byte[] bytes = source.value(value);
        return source.decoded(source.update(writable(key), old -> old == null ? bytes : old));
    }

    @Override
    public boolean remove(Object key, Object value) {
        byte[] bytes = source.key(key);
        return value != null && bounds.contains(bytes) && source.replace(bytes, value, null);
    }

    @Override
    public boolean replace(K key, V old, V value) {
        byte[] bytes = source.value(value);
        Objects.requireNonNull(old);
        byte[] name = source.key(key);
        return bounds.contains(name) && source.replace(name, old, bytes);
    }

    @Override
    public V replace(K key, V value) {
        byte[] bytes = source.value(value);
        byte[] name = source.key(key);
        return bounds.contains(name)
                ? source.decoded(source.update(name, old -> old == null ? null : bytes)) : null;
    }

    /** Replaces a value by what a function makes of it, atomically. Returns the value afterwards. */
    private V updated(K key, Function<V, V> function) {
        byte[] name = writable(key);
        // The results of the last run of the function.
        class Last implements Function<byte[], byte[]> {
            private V value;

            @Override
            public byte[] apply(byte[] old) {
                V before = source.decoded(old);
                value = function.apply(before);
                if (value == null) {
                    return null;
                }
                return value == before ? old : source.value(value);
            }
        }

        Last last = new Last();
        source.update(name, last);
        return last.value;
    }

    @Override
    public V compute(K key, BiFunction<? super K, ? super V, ? extends V> function) {
        Objects.requireNonNull(function);
        return updated(key, old -> function.apply(key, old));
    }

    @Override
    public V computeIfAbsent(K key, Function<? super K, ? extends V> function) {
        Objects.requireNonNull(function);
        return updated(key, old -> old == null ? function.apply(key) : old);
    }

    @Override
    public V computeIfPresent(K key, BiFunction<? super K, ? super V, ? extends V> function) {
        Objects.requireNonNull(function);
        return updated(key, old -> old == null ? null : function.apply(key, old));
    }

    @Override
    public V merge(K key, V value, BiFunction<? super V, ? super V, ? extends V> function) {
        Objects.requireNonNull(value);
        Objects.requireNonNull(function);
        return updated(key, old -> old == null ? value : function.apply(old, value));
    }

    @Override
    public Comparator<? super K> comparator() {
        return isDescending ? source.comparator().reversed() : source.comparator();
    }

    private static <T> T found(T key) {
        if (key == null) {
            throw new NoSuchElementException();
        }
        return key;
    }

    private K key(byte[] key) {
        return key == null ? null : source.keys().decode(key);
    }

    @Override
    public K firstKey() {
        return key(found(source.firstKey(bounds, isDescending)));
    }

    @Override
    public K lastKey() {
        return key(found(source.firstKey(bounds, !isDescending)));
    }

    @Override
    public Map.Entry<K, V> firstEntry() {
        return source.entry(source.first(bounds, isDescending));
    }

    @Override
    public Map.Entry<K, V> lastEntry() {
        return source.entry(source.first(bounds, !isDescending));
    }

    @Override
    public Map.Entry<K, V> pollFirstEntry() {
        return source.entry(source.poll(bounds, isDescending));
    }

    @Override
    public Map.Entry<K, V> pollLastEntry() {
        return source.entry(source.poll(bounds, !isDescending));
    }

    /** The keys before a key, or behind it, in the order of this map. */
    private MapBounds side(K key, boolean isBehind, boolean isInclusive) {
        byte[] bytes = source.key(key);
        if (isBehind != isDescending) {
            return bounds.from(isInclusive ? bytes : MapBounds.after(bytes));
        }
        return bounds.below(isInclusive ? MapBounds.after(bytes) : bytes);
    }

    @Override
    public Map.Entry<K, V> lowerEntry(K key) {
        return source.entry(source.first(side(key, false, false), !isDescending));
    }

    @Override
    public Map.Entry<K, V> floorEntry(K key) {
        return source.entry(source.first(side(key, false, true), !isDescending));
    }

    @Override
    public Map.Entry<K, V> ceilingEntry(K key) {
        return source.entry(source.first(side(key, true, true), isDescending));
    }

    @Override
    public Map.Entry<K, V> higherEntry(K key) {
        return source.entry(source.first(side(key, true, false), isDescending));
    }

    @Override
    public K lowerKey(K key) {
        return key(source.firstKey(side(key, false, false), !isDescending));
    }

    @Override
    public K floorKey(K key) {
        return key(source.firstKey(side(key, false, true), !isDescending));
    }

    @Override
    public K ceilingKey(K key) {
        return key(source.firstKey(side(key, true, true), isDescending));
    }

    @Override
    public K higherKey(K key) {
        return key(source.firstKey(side(key, true, false), isDescending));
    }

    @Override
    public ConcurrentNavigableMap<K, V> subMap(K from, boolean hasFrom, K to, boolean hasTo) {
        if (comparator().compare(from, to) > 0) {
            throw new IllegalArgumentException("the first key is behind the last one");
        }
        return part(Objects.requireNonNull(from), hasFrom, Objects.requireNonNull(to), hasTo);
    }

    @Override
    public ConcurrentNavigableMap<K, V> headMap(K to, boolean hasTo) {
        return part(null, true, Objects.requireNonNull(to), hasTo);
    }

    @Override
    public ConcurrentNavigableMap<K, V> tailMap(K from, boolean hasFrom) {
        return part(Objects.requireNonNull(from), hasFrom, null, true);
    }

    private ConcurrentNavigableMap<K, V> part(K from, boolean hasFrom, K to, boolean hasTo) {
        if (isDescending) {
            return partAscending(to, hasTo, from, hasFrom);
        }
        return partAscending(from, hasFrom, to, hasTo);
    }

    private ConcurrentNavigableMap<K, V> partAscending(K low, boolean hasLow, K high, boolean hasHigh) {
        byte[] start = low == null ? null : source.key(low);
        byte[] end = high == null ? null : source.key(high);
        if (start != null && !hasLow) {
            start = MapBounds.after(start);
        }
        if (end != null && hasHigh) {
            end = MapBounds.after(end);
        }
        if (!bounds.admits(start) || !bounds.admits(end)) {
            throw new IllegalArgumentException("the part is not within the range of this map");
        }
        return new EskerMap<>(source, bounds.from(start).below(end), isDescending);
    }

    @Override
    public ConcurrentNavigableMap<K, V> subMap(K from, K to) {
        return subMap(from, true, to, false);
    }

    @Override
    public ConcurrentNavigableMap<K, V> headMap(K to) {
        return headMap(to, false);
    }

    @Override
    public ConcurrentNavigableMap<K, V> tailMap(K from) {
        return tailMap(from, true);
    }

    @Override
    public ConcurrentNavigableMap<K, V> descendingMap() {
        return new EskerMap<>(source, bounds, !isDescending);
    }

    Iterator<K> keyIterator(boolean isOpposite) {
        return source.keys(bounds, isDescending != isOpposite);
    }

    @Override
    public NavigableSet<K> keySet() {
        return new EskerKeySet<>(this);
    }

    @Override
    public NavigableSet<K> navigableKeySet() {
        return keySet();
    }

    @Override
    public NavigableSet<K> descendingKeySet() {
        return new EskerKeySet<>(descendingMap());
    }

    @Override
    public Set<Map.Entry<K, V>> entrySet() {
        return new Entries();
    }

    /** The entries, in the order of the map. */
    private final class Entries extends AbstractSet<Map.Entry<K, V>> {
        @Override
        public Iterator<Map.Entry<K, V>> iterator() {
            return source.entries(bounds, isDescending);
        }

        @Override
        public int size() {
            return EskerMap.this.size();
        }

        @Override
        public boolean isEmpty() {
            return EskerMap.this.isEmpty();
        }

        @Override
        public boolean contains(Object object) {
            if (!(object instanceof Map.Entry<?, ?> entry) || entry.getKey() == null) {
                return false;
            }
            V value = get(entry.getKey());
            return value != null && (value.equals(entry.getValue()) || isSame(value, entry.getValue()));
        }

        /** Arrays are equal if their content is. */
        private boolean isSame(V value, Object other) {
            return value instanceof byte[] a && other instanceof byte[] b && java.util.Arrays.equals(a, b);
        }

        @Override
        public boolean remove(Object object) {
            return object instanceof Map.Entry<?, ?> entry
                    && entry.getKey() != null
                    && EskerMap.this.remove(entry.getKey(), entry.getValue());
        }

        @Override
        public void clear() {
            EskerMap.this.clear();
        }

        @Override
        public Spliterator<Map.Entry<K, V>> spliterator() {
            return Spliterators.spliteratorUnknownSize(
                    iterator(), Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL);
        }
    }
}
