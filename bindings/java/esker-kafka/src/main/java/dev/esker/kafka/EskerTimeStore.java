package dev.esker.kafka;

import dev.esker.Entry;
import dev.esker.Scan;
import dev.esker.Writes;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.kafka.common.utils.Bytes;

/**
 * A store of entries that end: a key, a time, and something else. Entries are in segments of time, so that
 * a single range removal ends all entries of a segment.
 *
 * <pre>
 *   segment (8 bytes) | key | time (8 bytes) | the rest (4 or 8 bytes)
 *                     +---- as in Kafka Streams' own stores and changelogs ----+
 * </pre>
 *
 * <p>Numbers are big-endian. Entries of different keys can be mixed within a segment, if one key begins with
 * another one, so readers compare the keys. The order is that of Kafka Streams' own stores, which its caches
 * rely on.
 */
abstract class EskerTimeStore extends EskerStore {
    final long retention;
    private final long segmentInterval;
    private final int restSize;
    /** The newest time of an entry since the opening: so it is in Kafka Streams' own stores. */
    private volatile long observed = -1;
    /** The first and the last segment that can have entries. */
    private volatile long segmentFirst;
    private volatile long segmentLast;

    /** The times that a store is made for, in milliseconds. */
    record Times(long retention, long segmentInterval) {}

    EskerTimeStore(String name, long memory, Times times, int restSize) {
        super(name, memory);
        this.retention = times.retention;
        this.segmentInterval = Math.max(1, times.segmentInterval);
        this.restSize = restSize;
    }

    @Override
    void opened() {
        observed = -1;
        segmentFirst = segmentAt(entries().all().keys(), Long.MAX_VALUE);
        segmentLast = segmentAt(entries().all().keys().reversed(), -1);
    }

    private static long segmentAt(Scan<byte[]> keys, long otherwise) {
        List<byte[]> found = keys.limit(1).toList();
        return found.isEmpty() ? otherwise : ByteBuffer.wrap(found.getFirst()).getLong();
    }

    private int suffixSize() {
        return Long.BYTES + restSize;
    }

    /** The key of an entry as the changelog has it. */
    final byte[] binary(byte[] key, long time, long rest) {
        ByteBuffer out = ByteBuffer.allocate(key.length + suffixSize()).put(key).putLong(time);
        return (restSize == Long.BYTES ? out.putLong(rest) : out.putInt((int) rest)).array();
    }

    final byte[] keyOf(byte[] stored) {
        return Arrays.copyOfRange(stored, Long.BYTES, stored.length - suffixSize());
    }

    final long timeOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - suffixSize());
    }

    final long restOf(byte[] stored) {
        ByteBuffer bytes = ByteBuffer.wrap(stored);
        int at = stored.length - restSize;
        return restSize == Long.BYTES ? bytes.getLong(at) : bytes.getInt(at);
    }

    private byte[] stored(long segment, byte[] binary) {
        return ByteBuffer.allocate(Long.BYTES + binary.length).putLong(segment).put(binary).array();
    }

    /** The key of an entry in the database. */
    final byte[] stored(byte[] binary) {
        long time = ByteBuffer.wrap(binary).getLong(binary.length - suffixSize());
        return stored(Math.max(0, time) / segmentInterval, binary);
    }

    /** Writes an entry, unless its segment has ended. */
    final void write(Writes to, byte[] binary, byte[] value) {
        long time = ByteBuffer.wrap(binary).getLong(binary.length - suffixSize());
        observed = Math.max(observed, time);
        long segment = Math.max(0, time) / segmentInterval;
        long segmentMin = Math.max(0, observed - retention) / segmentInterval;
        if (segment >= segmentMin) {
            segmentFirst = Math.min(segmentFirst, segment);
            segmentLast = Math.max(segmentLast, segment);
            set(to, stored(binary), value);
        }
        if (segmentMin > segmentFirst) {
            segmentFirst = segmentMin;
            to.deleteRange(null, stored(segmentMin, new byte[0]));
        }
    }

    @Override
    final void restore(Writes to, byte[] key, byte[] value) {
        write(to, key, value);
    }

    /** The oldest time of entries that are shown. */
    final long timeMin() {
        return Math.max(0, observed - retention + 1);
    }

    /** Which entries of the segments are looked at. */
    interface Part {
        /** Returns the first and the last key of the changelog; null: no bound. */
        byte[][] of();
    }

    /** Scans of the segments between two times. */
    final List<Scan<Entry>> scans(long from, long to, boolean isBackward, Part part) {
        long first = Math.max(0, from) / segmentInterval;
        long last = to < 0 ? -1 : to / segmentInterval;
        byte[][] bounds = part.of();
        List<Scan<Entry>> scans = new ArrayList<>();
        long end = Math.min(last, segmentLast);
        for (long segment = Math.max(first, segmentFirst); segment <= end; segment++) {
            byte[] start = stored(segment, bounds[0] == null ? new byte[0] : bounds[0]);
            byte[] stop = bounds[1] == null
                    ? stored(segment + 1, new byte[0]) : Arrays.copyOf(stored(segment, bounds[1]),
                            Long.BYTES + bounds[1].length + 1);
            if (Arrays.compareUnsigned(start, stop) < 0) {
                Scan<Entry> scan = entries().range(start, stop);
                scans.add(isBackward ? scan.reversed() : scan);
            }
        }
        if (isBackward) {
            Collections.reverse(scans);
        }
        return scans;
    }

    /** The entries of one key, and maybe of others that begin with it. */
    final Part ofKey(Bytes key, long from, long to) {
        long rest = restSize == Long.BYTES ? Long.MAX_VALUE : Integer.MAX_VALUE;
        return () -> new byte[][] {
            binary(key.get(), Math.max(0, from), 0), binary(key.get(), to, rest)
        };
    }

    /** The entries of the keys between two keys, and maybe of others. */
    final Part ofKeys(Bytes from, Bytes to) {
        return () -> new byte[][] {from == null ? null : from.get(), to == null ? null : last(to.get())};
    }

    /** The last key of the changelog for keys up to a key. Null: it is not known. */
    private byte[] last(byte[] key) {
        // With times, a key that the given one begins with sorts behind it if the given one's rest sorts
        // before a time. A time begins with a zero byte.
        for (byte b : key) {
            if (b == 0) {
                return null;
            }
        }
        byte[] last = Arrays.copyOf(key, key.length + suffixSize());
        Arrays.fill(last, key.length, last.length, (byte) 0xFF);
        return last;
    }

    /** Whether a stored entry is within bounds; a key of null: no bound. */
    final boolean isIn(byte[] stored, Bytes from, Bytes to) {
        Bytes key = Bytes.wrap(keyOf(stored));
        return (from == null || from.compareTo(key) <= 0) && (to == null || key.compareTo(to) <= 0);
    }
}
