package dev.esker;

import com.google.common.collect.testing.ConcurrentMapTestSuiteBuilder;
import com.google.common.collect.testing.NavigableMapTestSuiteBuilder;
import com.google.common.collect.testing.SafeTreeMap;
import com.google.common.collect.testing.TestStringMapGenerator;
import com.google.common.collect.testing.TestStringSortedMapGenerator;
import com.google.common.collect.testing.features.CollectionFeature;
import com.google.common.collect.testing.features.CollectionSize;
import com.google.common.collect.testing.features.Feature;
import com.google.common.collect.testing.features.MapFeature;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import junit.framework.Test;
import junit.framework.TestFailure;
import junit.framework.TestResult;
import junit.framework.TestSuite;
import org.junit.jupiter.api.Assertions;

/**
 * Guava's suites for maps on a keyspace.
 *
 * <p>Features that a keyspace lacks: null as a key or value (ALLOWS_NULL_...), serialization (SERIALIZABLE),
 * and iterators that fail after a change (FAILS_FAST_ON_CONCURRENT_MODIFICATION): they see one state.
 */
class MapSuiteTest {
    private static final Esker DB = Esker.options().durability(Durability.NONE).openInMemory();
    private static final List<Feature<?>> FEATURES = List.of(
            MapFeature.GENERAL_PURPOSE,
            CollectionFeature.SUPPORTS_ITERATOR_REMOVE,
            CollectionFeature.KNOWN_ORDER,
            CollectionSize.ANY);

    private static Map<String, String> filled(Map.Entry<String, String>[] entries) {
        Keyspace keyspace = DB.keyspace("map");
        keyspace.deleteRange(null, null);
        Map<String, String> map = keyspace.asMap(Codec.UTF8, Codec.UTF8);
        for (Map.Entry<String, String> entry : entries) {
            map.put(entry.getKey(), entry.getValue());
        }
        return map;
    }

    /** Runs the suites inside of one test: reporting each of their tests takes Surefire half an hour. */
    @org.junit.jupiter.api.Test
    void guavasSuitesPass() {
        TestResult result = new TestResult();
        suite().run(result);
        Stream<TestFailure> failures =
                Stream.concat(java.util.Collections.list(result.failures()).stream(),
                        java.util.Collections.list(result.errors()).stream());
        Assertions.assertEquals("", failures.map(TestFailure::toString).collect(Collectors.joining("\n")));
        Assertions.assertTrue(result.runCount() > 30_000, "tests run: " + result.runCount());
    }

    private static Test suite() {
        TestSuite suite = new TestSuite();
        List<Feature<?>> features = new ArrayList<>(FEATURES);
        suite.addTest(NavigableMapTestSuiteBuilder.using(new TestStringSortedMapGenerator() {
            @Override
            protected SortedMap<String, String> create(Map.Entry<String, String>[] entries) {
                return (SortedMap<String, String>) filled(entries);
            }
        }).named("navigable map").withFeatures(features).createTestSuite());
        suite.addTest(ConcurrentMapTestSuiteBuilder.using(new TestStringMapGenerator() {
            @Override
            protected Map<String, String> create(Map.Entry<String, String>[] entries) {
                return filled(entries);
            }

            @Override
            public Iterable<Map.Entry<String, String>> order(List<Map.Entry<String, String>> order) {
                SafeTreeMap<String, String> sorted = new SafeTreeMap<>();
                order.forEach(entry -> sorted.put(entry.getKey(), entry.getValue()));
                return sorted.entrySet();
            }
        }).named("concurrent map").withFeatures(features).createTestSuite());
        return suite;
    }
}
