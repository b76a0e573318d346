package dev.esker;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.WeakHashMap;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * Which entries to walk over, and how. Each {@link #iterator} or {@link #stream} sees the state of the time
 * when it was made.
 *
 * <pre>{@code
 *   try (var scan = users.range(a, b).reversed().limit(10)) {
 *       for (Entry e : scan) { ... }
 *   }
 * }</pre>
 *
 * <p>An iterator is freed at its last entry. Closing the scan frees iterators that were left earlier;
 * otherwise the garbage collector does, and until then they keep old data on disk.
 *
 * @param <T> what it gives: entries or keys
 */
public final class Scan<T> implements Iterable<T>, AutoCloseable {
    private static final int REVERSE = 1;
    private static final int KEYS = 2;

    /** What is walked over. Bounds of null: none. */
    record Bounds(View view, byte[] from, byte[] to, byte[] prefix) {}

    private final Bounds bounds;
    private final int flags;
    private final long limit;
    private final BiFunction<byte[], byte[], T> make;
    /** Iterators that may be open. Scans derived from each other share it. */
    private final Set<ScanIterator<?>> open;

    private Scan(Bounds bounds, int flags, long limit, BiFunction<byte[], byte[], T> make,
            Set<ScanIterator<?>> open) {
        this.bounds = bounds;
        this.flags = flags;
        this.limit = limit;
        this.make = make;
        this.open = open;
    }

    static Scan<Entry> of(View view, byte[] from, byte[] to, byte[] prefix) {
        Bounds bounds = new Bounds(view, copy(from), copy(to), copy(prefix));
        Set<ScanIterator<?>> open =
                Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));
        return new Scan<>(bounds, 0, Long.MAX_VALUE, Entry::new, open);
    }

    private static byte[] copy(byte[] bytes) {
        return bytes == null ? null : bytes.clone();
    }

    /** Returns a scan in the other direction. */
    public Scan<T> reversed() {
        return new Scan<>(bounds, flags ^ REVERSE, limit, make, open);
    }

    /** Returns a scan that ends after some entries. */
    public Scan<T> limit(long entries) {
        if (entries < 0) {
            throw new InvalidException("a limit of " + entries + " entries");
        }
        return new Scan<>(bounds, flags, Math.min(limit, entries), make, open);
    }

    /** Returns a scan of the keys; large values are not read. */
    public Scan<byte[]> keys() {
        return new Scan<>(bounds, flags | KEYS, limit, (key, value) -> key, open);
    }

    /** Begins a walk. */
    @Override
    public ScanIterator<T> iterator() {
        ScanIterator<T> iterator = new ScanIterator<>(walk(), limit, make, bounds.view);
        open.add(iterator);
        return iterator;
    }

    private Walk walk() {
        return Walk.begin(bounds, flags, limit);
    }

    @Override
    public Spliterator<T> spliterator() {
        return spliterator(iterator());
    }

    private static <T> Spliterator<T> spliterator(ScanIterator<T> iterator) {
        return Spliterators.spliteratorUnknownSize(iterator, Spliterator.ORDERED | Spliterator.NONNULL);
    }

    /** Begins a walk as a stream. Close it if it may end before the last entry. */
    public Stream<T> stream() {
        ScanIterator<T> iterator = iterator();
        return StreamSupport.stream(spliterator(iterator), false).onClose(iterator::close);
    }

    /** Returns all entries. */
    public List<T> toList() {
        List<T> list = new ArrayList<>();
        try (ScanIterator<T> iterator = iterator()) {
            iterator.forEachRemaining(list::add);
        }
        return list;
    }

    /** Returns the number of entries, which it has to walk over. {@link Reads#size} need not. */
    public long count() {
        long count = 0;
        try (ScanIterator<byte[]> iterator = keys().iterator()) {
            for (; iterator.hasNext(); iterator.next()) {
                count++;
            }
        }
        return count;
    }

    /** A function that takes entries without copies. */
    @FunctionalInterface
    public interface Visitor {
        /**
         * Takes an entry. The segments are read-only and must not be kept: they throw after the visit.
         * Returns whether to go on.
         */
        boolean visit(MemorySegment key, MemorySegment value);
    }

    /** Calls a function with each entry, without copies to the heap. */
    public void visit(Visitor visitor) {
        long left = limit;
        Walk walk = walk();
        try {
            while (left > 0) {
                long visited = walk.visit(visitor, left);
                if (visited <= 0) {
                    return;
                }
                left -= visited;
            }
        } finally {
            walk.close();
            java.lang.ref.Reference.reachabilityFence(bounds.view);
        }
    }

    /** Frees the iterators that were made of this scan. */
    @Override
    public void close() {
        List<ScanIterator<?>> iterators;
        synchronized (open) {
            iterators = new ArrayList<>(open);
            open.clear();
        }
        iterators.forEach(ScanIterator::close);
    }
}
