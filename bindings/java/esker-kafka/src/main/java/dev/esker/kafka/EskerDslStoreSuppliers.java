package dev.esker.kafka;

import java.time.Duration;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Esker as the state store of Kafka Streams:
 * {@code dsl.store.suppliers.class=dev.esker.kafka.EskerDslStoreSuppliers}.
 *
 * <p>{@code esker.memory.bytes} is the memory of each store for caches and memtables; default 32 MiB.
 */
public final class EskerDslStoreSuppliers implements DslStoreSuppliers {
    /** The name of the option for the memory of each store, in bytes. */
    public static final String MEMORY_BYTES = "esker.memory.bytes";

    private static final long MEMORY_DEFAULT = 32 << 20;

    private long memory = MEMORY_DEFAULT;

    /** Kafka Streams makes the object. */
    public EskerDslStoreSuppliers() {}

    @Override
    public void configure(Map<String, ?> options) {
        Object given = options.get(MEMORY_BYTES);
        if (given != null) {
            memory = Long.parseLong(given.toString());
        }
    }

    /** Segments are as long as in Kafka Streams' own stores. */
    private static EskerTimeStore.Times times(Duration retention) {
        long milliseconds = retention.toMillis();
        return new EskerTimeStore.Times(milliseconds, Math.max(milliseconds / 2, 60_000));
    }

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        String name = params.name();
        return switch (params.dslStoreFormat()) {
            case PLAIN -> new KeyValue(name, n -> new EskerKeyValueStore(n, memory));
            case TIMESTAMPED -> new KeyValue(name, n -> new EskerKeyValueStore.Timestamped(n, memory));
            case HEADERS ->
                new KeyValueWithHeaders(name, n -> new EskerKeyValueStore.WithHeaders(n, memory));
        };
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        boolean isForEnd = params.emitStrategy().type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE;
        // A window is looked up at the moment when its retention ends.
        EskerTimeStore.Times times = times(params.retentionPeriod().plusMillis(isForEnd ? 1 : 0));
        long size = params.windowSize().toMillis();
        boolean twice = params.retainDuplicates();
        Function<String, WindowStore<Bytes, byte[]>> make = switch (params.dslStoreFormat()) {
            case PLAIN -> name -> new EskerWindowStore(name, memory, times, size, twice);
            case TIMESTAMPED -> name -> new EskerWindowStore.Timestamped(name, memory, times, size, twice);
            case HEADERS -> name -> new EskerWindowStore.WithHeaders(name, memory, times, size, twice);
        };
        return params.dslStoreFormat() == DslStoreFormat.HEADERS
                ? new WindowsWithHeaders(params, times, make) : new Windows(params, times, make);
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        EskerTimeStore.Times times = times(params.retentionPeriod());
        String name = params.name();
        return params.storeFormat() == DslStoreFormat.HEADERS
                ? new SessionsWithHeaders(
                        name, times, n -> new EskerSessionStore.WithHeaders(n, memory, times))
                : new Sessions(name, times, n -> new EskerSessionStore(n, memory, times));
    }

    private static class KeyValue implements KeyValueBytesStoreSupplier {
        private final String name;
        private final Function<String, KeyValueStore<Bytes, byte[]>> make;

        KeyValue(String name, Function<String, KeyValueStore<Bytes, byte[]>> make) {
            this.name = name;
            this.make = make;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return make.apply(name);
        }

        @Override
        public String metricsScope() {
            return "esker";
        }
    }

    private static final class KeyValueWithHeaders extends KeyValue implements HeadersBytesStoreSupplier {
        KeyValueWithHeaders(String name, Function<String, KeyValueStore<Bytes, byte[]>> make) {
            super(name, make);
        }
    }

    private static class Windows implements WindowBytesStoreSupplier {
        private final DslWindowParams params;
        private final EskerTimeStore.Times times;
        private final Function<String, WindowStore<Bytes, byte[]>> make;

        Windows(DslWindowParams params, EskerTimeStore.Times times,
                Function<String, WindowStore<Bytes, byte[]>> make) {
            this.params = params;
            this.times = times;
            this.make = make;
        }

        @Override
        public String name() {
            return params.name();
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return make.apply(params.name());
        }

        @Override
        public String metricsScope() {
            return "esker-window";
        }

        @Override
        public long segmentIntervalMs() {
            return times.segmentInterval();
        }

        @Override
        public long windowSize() {
            return params.windowSize().toMillis();
        }

        @Override
        public boolean retainDuplicates() {
            return params.retainDuplicates();
        }

        @Override
        public long retentionPeriod() {
            return times.retention();
        }
    }

    private static final class WindowsWithHeaders extends Windows implements HeadersBytesStoreSupplier {
        WindowsWithHeaders(DslWindowParams params, EskerTimeStore.Times times,
                Function<String, WindowStore<Bytes, byte[]>> make) {
            super(params, times, make);
        }
    }

    private static class Sessions implements SessionBytesStoreSupplier {
        private final String name;
        private final EskerTimeStore.Times times;
        private final Function<String, SessionStore<Bytes, byte[]>> make;

        Sessions(
                String name, EskerTimeStore.Times times, Function<String, SessionStore<Bytes, byte[]>> make) {
            this.name = name;
            this.times = times;
            this.make = make;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return make.apply(name);
        }

        @Override
        public String metricsScope() {
            return "esker-session";
        }

        @Override
        public long segmentIntervalMs() {
            return times.segmentInterval();
        }

        @Override
        public long retentionPeriod() {
            return times.retention();
        }
    }

    private static final class SessionsWithHeaders extends Sessions implements HeadersBytesStoreSupplier {
        SessionsWithHeaders(
                String name, EskerTimeStore.Times times, Function<String, SessionStore<Bytes, byte[]>> make) {
            super(name, times, make);
        }
    }
}
