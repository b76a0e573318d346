package dev.esker.kafka;

import dev.esker.ClosedException;
import dev.esker.Entry;
import dev.esker.Scan;
import dev.esker.ScanIterator;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Function;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Walks over scans, one after the other. */
class EntryIterator<K> implements KeyValueIterator<K, byte[]> {
    private final Iterator<Scan<Entry>> scans;
    private final Function<byte[], K> keyOf;
    private ScanIterator<Entry> walk;
    private KeyValue<K, byte[]> next;
    private boolean isClosed;

    /** A {@code keyOf} that returns null leaves an entry out. */
    EntryIterator(Iterable<Scan<Entry>> scans, Function<byte[], K> keyOf) {
        this.scans = scans.iterator();
        this.keyOf = keyOf;
    }

    /** Walks over the values of a key; the keys are times. */
    static final class Times extends EntryIterator<Long> implements WindowStoreIterator<byte[]> {
        Times(Iterable<Scan<Entry>> scans, Function<byte[], Long> timeOf) {
            super(scans, timeOf);
        }
    }

    @Override
    public boolean hasNext() {
        if (isClosed) {
            throw new InvalidStateStoreException("the iterator is closed");
        }
        try {
            while (next == null && (isIn() || (scans.hasNext() && begin()))) {
                Entry entry = isIn() ? walk.next() : null;
                K key = entry == null ? null : keyOf.apply(entry.key());
                next = key == null ? null : KeyValue.pair(key, entry.value());
            }
        } catch (ClosedException e) {
            throw new InvalidStateStoreException("the store is closed", e);
        }
        return next != null;
    }

    private boolean isIn() {
        return walk != null && walk.hasNext();
    }

    private boolean begin() {
        walk = scans.next().iterator();
        return true;
    }

    @Override
    public KeyValue<K, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<K, byte[]> taken = next;
        next = null;
        return taken;
    }

    @Override
    public K peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return next.key;
    }

    @Override
    public void close() {
        isClosed = true;
        if (walk != null) {
            walk.close();
        }
    }
}
