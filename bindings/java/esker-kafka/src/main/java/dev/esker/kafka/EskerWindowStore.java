package dev.esker.kafka;

import dev.esker.Entry;
import dev.esker.Scan;
import java.util.List;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** A store of windows: a key, the time of the window's start, a number that tells duplicates apart. */
class EskerWindowStore extends EskerTimeStore implements WindowStore<Bytes, byte[]> {
    private final long windowSize;
    private final boolean hasDuplicates;
    private int duplicate;

    EskerWindowStore(String name, long memory, Times times, long windowSize, boolean hasDuplicates) {
        super(name, memory, times, Integer.BYTES);
        this.windowSize = windowSize;
        this.hasDuplicates = hasDuplicates;
    }

    /** Its values begin with a time. */
    static final class Timestamped extends EskerWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long memory, Times times, long windowSize, boolean hasDuplicates) {
            super(name, memory, times, windowSize, hasDuplicates);
        }
    }

    /** Its values begin with headers and a time. */
    static final class WithHeaders extends EskerWindowStore implements HeadersBytesStore {
        WithHeaders(String name, long memory, Times times, long windowSize, boolean hasDuplicates) {
            super(name, memory, times, windowSize, hasDuplicates);
        }
    }

    @Override
    public void put(Bytes key, byte[] value, long start) {
        // A removal among duplicates has no meaning.
        if (!hasDuplicates || value != null) {
            if (hasDuplicates) {
                duplicate = (duplicate + 1) & Integer.MAX_VALUE;
            }
            write(entries(), binary(key.get(), start, duplicate), value);
        }
        written();
    }

    @Override
    public byte[] fetch(Bytes key, long start) {
        return start < timeMin() ? null : entries().get(stored(binary(key.get(), start, duplicate)));
    }

    private WindowStoreIterator<byte[]> times(Bytes key, long from, long to, boolean isBackward) {
        long first = Math.max(from, timeMin());
        List<Scan<Entry>> scans = scans(first, to, isBackward, ofKey(key, first, to));
        return new EntryIterator.Times(scans, stored -> {
            long time = timeOf(stored);
            return isIn(stored, key, key) && first <= time && time <= to ? time : null;
        });
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return times(key, from, to, false);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return times(key, from, to, true);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> windows(
            Bytes keyFrom, Bytes keyTo, long from, long to, boolean isBackward) {
        long first = Math.max(from, timeMin());
        Function<byte[], Windowed<Bytes>> windowOf = stored -> {
            long time = timeOf(stored);
            return isIn(stored, keyFrom, keyTo) && first <= time && time <= to ? window(stored, time) : null;
        };
        return new EntryIterator<>(scans(first, to, isBackward, ofKeys(keyFrom, keyTo)), windowOf);
    }

    private Windowed<Bytes> window(byte[] stored, long start) {
        long end = start + windowSize;
        TimeWindow window = new TimeWindow(start, end < 0 ? Long.MAX_VALUE : end);
        return new Windowed<>(Bytes.wrap(keyOf(stored)), window);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return windows(keyFrom, keyTo, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(
            Bytes keyFrom, Bytes keyTo, long from, long to) {
        return windows(keyFrom, keyTo, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return windows(null, null, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return windows(null, null, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return windows(null, null, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return windows(null, null, 0, Long.MAX_VALUE, true);
    }
}
