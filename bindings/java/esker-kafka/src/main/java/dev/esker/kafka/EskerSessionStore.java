package dev.esker.kafka;

import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;

/** A store of sessions: a key, the time of the session's end, that of its start. */
class EskerSessionStore extends EskerTimeStore implements SessionStore<Bytes, byte[]> {
    EskerSessionStore(String name, long memory, Times times) {
        super(name, memory, times, Long.BYTES);
    }

    /** Its values begin with headers. */
    static final class WithHeaders extends EskerSessionStore implements HeadersBytesStore {
        WithHeaders(String name, long memory, Times times) {
            super(name, memory, times);
        }
    }

    /** Bounds of sessions: of their keys, the least end, the greatest start and end. */
    private record Search(Bytes keyFrom, Bytes keyTo, long endMin, long startMax, long endMax) {}

    @Override
    public void put(Windowed<Bytes> session, byte[] value) {
        byte[] key = session.key().get();
        write(entries(), binary(key, session.window().end(), session.window().start()), value);
        written();
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        put(session, null);
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        return end < timeMin() ? null : entries().get(stored(binary(key.get(), end, start)));
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> find(Search search, boolean isBackward) {
        long endMin = search.endMin;
        boolean isOneKey = search.keyFrom != null && search.keyFrom.equals(search.keyTo);
        Part part = isOneKey
                ? ofKey(search.keyFrom, endMin, Long.MAX_VALUE) : ofKeys(search.keyFrom, search.keyTo);
        Function<byte[], Windowed<Bytes>> sessionOf = stored -> {
            long end = timeOf(stored);
            long start = restOf(stored);
            boolean isFound = isIn(stored, search.keyFrom, search.keyTo)
                    && endMin <= end && end <= search.endMax && start <= search.startMax;
            return isFound ? new Windowed<>(Bytes.wrap(keyOf(stored)), new SessionWindow(start, end)) : null;
        };
        return new EntryIterator<>(scans(endMin, search.endMax, isBackward, part), sessionOf);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long endMin, long endMax) {
        // Sessions that have ended are given too, for results at the end of sessions.
        return find(new Search(null, null, endMin, Long.MAX_VALUE, endMax), false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long endMin, long startMax) {
        return findSessions(key, key, endMin, startMax);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long endMin, long startMax) {
        return backwardFindSessions(key, key, endMin, startMax);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long endMin, long startMax) {
        return find(new Search(keyFrom, keyTo, Math.max(endMin, timeMin()), startMax, Long.MAX_VALUE), false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long endMin, long startMax) {
        return find(new Search(keyFrom, keyTo, Math.max(endMin, timeMin()), startMax, Long.MAX_VALUE), true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return findSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return backwardFindSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return findSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return backwardFindSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }
}
