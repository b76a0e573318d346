package dev.esker;

import java.util.AbstractSet;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableSet;
import java.util.SortedSet;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.function.Consumer;

/** The keys of a map. */
final class EskerKeySet<K> extends AbstractSet<K> implements NavigableSet<K> {
    private final ConcurrentNavigableMap<K, ?> map;

    EskerKeySet(ConcurrentNavigableMap<K, ?> map) {
        this.map = map;
    }

    @Override
    public Iterator<K> iterator() {
        return ((EskerMap<K, ?>) map).keyIterator(false);
    }

    @Override
    public Iterator<K> descendingIterator() {
        return ((EskerMap<K, ?>) map).keyIterator(true);
    }

    @Override
    public int size() {
        return map.size();
    }

    @Override
    public boolean isEmpty() {
        return map.isEmpty();
    }

    @Override
    public boolean contains(Object key) {
        return map.containsKey(key);
    }

    @Override
    public boolean remove(Object key) {
        return map.remove(key) != null;
    }

    @Override
    public void clear() {
        map.clear();
    }

    @Override
    public Comparator<? super K> comparator() {
        return map.comparator();
    }

    @Override
    public K first() {
        return map.firstKey();
    }

    @Override
    public K last() {
        return map.lastKey();
    }

    @Override
    public K lower(K key) {
        return map.lowerKey(key);
    }

    @Override
    public K floor(K key) {
        return map.floorKey(key);
    }

    @Override
    public K ceiling(K key) {
        return map.ceilingKey(key);
    }

    @Override
    public K higher(K key) {
        return map.higherKey(key);
    }

    private static <K> K key(Map.Entry<K, ?> entry) {
        return entry == null ? null : entry.getKey();
    }

    @Override
    public K pollFirst() {
        return key(map.pollFirstEntry());
    }

    @Override
    public K pollLast() {
        return key(map.pollLastEntry());
    }

    @Override
    public NavigableSet<K> descendingSet() {
        return map.descendingKeySet();
    }

    @Override
    public NavigableSet<K> subSet(K from, boolean hasFrom, K to, boolean hasTo) {
        return map.subMap(from, hasFrom, to, hasTo).navigableKeySet();
    }

    @Override
    public NavigableSet<K> headSet(K to, boolean hasTo) {
        return map.headMap(to, hasTo).navigableKeySet();
    }

    @Override
    public NavigableSet<K> tailSet(K from, boolean hasFrom) {
        return map.tailMap(from, hasFrom).navigableKeySet();
    }

    @Override
    public SortedSet<K> subSet(K from, K to) {
        return subSet(from, true, to, false);
    }

    @Override
    public SortedSet<K> headSet(K to) {
        return headSet(to, false);
    }

    @Override
    public SortedSet<K> tailSet(K from) {
        return tailSet(from, true);
    }

    @Override
    public Spliterator<K> spliterator() {
        int properties = Spliterator.ORDERED | Spliterator.SORTED
                | Spliterator.DISTINCT | Spliterator.NONNULL;
        return new Spliterators.AbstractSpliterator<>(Long.MAX_VALUE, properties) {
            private Iterator<K> keys;

            @Override
            public boolean tryAdvance(Consumer<? super K> action) {
                if (keys == null) {
                    keys = iterator();
                }
                if (!keys.hasNext()) {
                    return false;
                }
                action.accept(keys.next());
                return true;
            }

            @Override
            public Comparator<? super K> getComparator() {
                return comparator();
            }
        };
    }
}
