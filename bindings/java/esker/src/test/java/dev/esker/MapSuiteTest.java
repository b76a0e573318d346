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
import junit.framework.Test;
import junit.framework.TestCase;
import junit.framework.TestSuite;

/**
 * Guava's suites for maps on a keyspace.
 *
 * <p>Features that a keyspace lacks: null as a key or value (ALLOWS_NULL_...), serialization (SERIALIZABLE),
 * and iterators that fail after a change (FAILS_FAST_ON_CONCURRENT_MODIFICATION): they see one state.
 */
public class MapSuiteTest extends TestCase {
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

    public static Test suite() {
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
