package dev.esker.kafka;

import dev.esker.Entry;
import dev.esker.Keyspace;
import dev.esker.Scan;
import dev.esker.Writes;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;

/** A store of keys and values. */
class EskerKeyValueStore extends EskerStore implements KeyValueStore<Bytes, byte[]> {
    EskerKeyValueStore(String name, long memory) {
        super(name, memory);
    }

    /** Its values begin with a time. */
    static final class Timestamped extends EskerKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name, long memory) {
            super(name, memory);
        }
    }

    /** Its values begin with headers and a time. */
    static final class WithHeaders extends EskerKeyValueStore implements HeadersBytesStore {
        WithHeaders(String name, long memory) {
            super(name, memory);
        }
    }

    @Override
    void restore(Writes to, byte[] key, byte[] value) {
        set(to, key, value);
    }

    @Override
    public byte[] get(Bytes key) {
        return entries().get(key.get());
    }

    @Override
    public void put(Bytes key, byte[] value) {
        set(entries(), key.get(), value);
        written();
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] old = get(key);
        if (old == null) {
            put(key, value);
        }
        return old;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> records) {
        Keyspace entries = entries();
        records.forEach(record -> set(entries, record.key.get(), record.value));
        written();
    }

    @Override
    public byte[] delete(Bytes key) {
        byte[] old = entries().remove(key.get());
        written();
        return old;
    }

    /** The keys between two keys, both included. Null: no bound. */
    private Scan<Entry> between(Bytes from, Bytes to) {
        byte[] end = to == null ? null : Arrays.copyOf(to.get(), to.get().length + 1);
        if (from != null && to != null && from.compareTo(to) > 0) {
            return entries().all().limit(0);
        }
        return entries().range(from == null ? null : from.get(), end);
    }

    private static KeyValueIterator<Bytes, byte[]> walk(Scan<Entry> scan) {
        return new EntryIterator<>(List.of(scan), Bytes::wrap);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return walk(between(from, to));
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return walk(between(from, to).reversed());
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return walk(entries().all());
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return walk(entries().all().reversed());
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS serializer) {
        Objects.requireNonNull(prefix);
        return walk(entries().prefix(serializer.serialize(null, prefix)));
    }

    /** The number of entries, which is exact. */
    @Override
    public long approximateNumEntries() {
        return entries().size();
    }
}
