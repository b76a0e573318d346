package dev.esker;

import static dev.esker.EskerTest.b;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What Guava's suites do not show of maps: threads, bytes, keys of the greatest length. */
class MapTest {
    private final Esker db = Esker.options().durability(Durability.NONE).openInMemory();
    private final Keyspace keyspace = db.keyspace("map");

    @AfterEach
    void close() {
        db.close();
    }

    private static void inThreads(Runnable body) throws InterruptedException {
        List<Thread> threads = Stream.generate(() -> Thread.ofPlatform().start(body)).limit(4).toList();
        for (Thread thread : threads) {
            thread.join();
        }
    }

    @Test
    void updatesOfSeveralThreadsAreAtomic() throws InterruptedException {
        ConcurrentNavigableMap<Long, Long> map = keyspace.asMap(Codec.LONG, Codec.LONG);
        inThreads(() -> {
            for (long i = 0; i < 400; i++) {
                map.merge(i % 10, 1L, Long::sum);
                map.compute(-1L, (key, old) -> old == null ? 1 : old + 1);
            }
        });
        assertEquals(1_600L, map.remove(-1L));
        assertEquals(1_600L, map.values().stream().mapToLong(n -> n).sum());
        map.clear();
        for (long i = 0; i < 500; i++) {
            map.put(i, -i);
        }
        Set<Long> polled = ConcurrentHashMap.newKeySet();
        inThreads(() -> {
            for (Map.Entry<Long, Long> e = map.pollFirstEntry(); e != null; e = map.pollLastEntry()) {
                assertEquals(-e.getKey(), e.getValue());
                if (!polled.add(e.getKey())) {
                    polled.add(Long.MIN_VALUE);
                }
            }
        });
        assertEquals(500, polled.size());
        assertEquals(0, keyspace.size());
    }

    @Test
    void partsAndViewsSeeTheSameKeyspace() {
        ConcurrentNavigableMap<byte[], byte[]> map = keyspace.asMap();
        for (String key : List.of("a", "b", "c", "d")) {
            map.put(b(key), b("v" + key));
        }
        ConcurrentNavigableMap<byte[], byte[]> part = map.descendingMap().subMap(b("d"), false, b("b"), true);
        assertArrayEquals(b("c"), part.firstKey());
        assertArrayEquals(b("b"), part.lastKey());
        assertArrayEquals(b("vb"), map.replace(b("b"), b("new")));
        assertEquals(Map.entry("b", "new"), Map.entry(
                EskerTest.s(part.lastEntry().getKey()), EskerTest.s(part.lastEntry().getValue())));
        assertEquals(true, part.remove(b("c"), b("vc")));
        assertThrows(IllegalArgumentException.class, () -> part.put(b("d"), b("out of range")));
        assertThrows(IllegalArgumentException.class, () -> part.headMap(b("a"), true));
        part.clear();
        assertEquals(2, map.size());
        assertEquals(2, keyspace.size());
    }

    @Test
    void keysOfTheGreatestLengthHaveNeighbours() {
        ConcurrentNavigableMap<byte[], byte[]> map = keyspace.asMap();
        byte[] longest = new byte[65_535];
        map.put(longest, b("1"));
        map.put(b("z"), b("2"));
        assertArrayEquals(longest, map.floorKey(longest));
        assertArrayEquals(b("z"), map.higherKey(longest));
        assertEquals(1, map.headMap(longest, true).size());
        assertNull(map.lowerKey(longest));
        map.headMap(longest, true).clear();
        assertEquals(1, map.size());
    }
}
