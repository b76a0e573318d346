package dev.esker.kafka;

import dev.esker.Batch;
import dev.esker.Durability;
import dev.esker.Esker;
import dev.esker.Keyspace;
import dev.esker.Writes;
import java.io.File;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.BatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;

/**
 * What all stores have in common: a database in the directory of the task, {@code esker/NAME}.
 *
 * <p>Writes do not wait for the disk. A commit of the task makes them durable, before Kafka Streams writes
 * down the offset up to which the changelog need not be read again.
 */
abstract class EskerStore implements StateStore {
    private static final String KEYSPACE = "default";

    final String name;
    private final long memory;
    private final Position position = Position.emptyPosition();
    private StateStoreContext context;
    private volatile boolean isDirty;
    private volatile Esker db;
    private volatile Keyspace entries;

    EskerStore(String name, long memory) {
        this.name = name;
        this.memory = memory;
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = context;
        File directory = new File(new File(context.stateDir(), "esker"), name);
        if (!directory.isDirectory() && !directory.mkdirs()) {
            throw new InvalidStateStoreException("the directory " + directory + " cannot be created");
        }
        db = Esker.options().memory(memory).durability(Durability.NONE).open(directory.toPath());
        entries = db.keyspace(KEYSPACE);
        opened();
        context.register(root, new Restore());
    }

    /** The database was opened. */
    void opened() {}

    /** Writes a record of the changelog. A value of null removes the key. */
    abstract void restore(Writes to, byte[] key, byte[] value);

    /** Applies the changelog in batches. */
    private final class Restore implements BatchingStateRestoreCallback {
        @Override
        public void restoreAll(Collection<KeyValue<byte[], byte[]>> records) {
            try (Batch batch = db().batch()) {
                Writes to = batch.keyspace(entries());
                records.forEach(record -> EskerStore.this.restore(to, record.key, record.value));
                isDirty = true;
                batch.commit();
            }
        }
    }

    private Esker db() {
        Esker now = db;
        if (now == null) {
            throw new InvalidStateStoreException("the store " + name + " is not open");
        }
        return now;
    }

    final Keyspace entries() {
        Keyspace now = entries;
        if (now == null) {
            throw new InvalidStateStoreException("the store " + name + " is not open");
        }
        return now;
    }

    static void set(Writes to, byte[] key, byte[] value) {
        if (value == null) {
            to.delete(key);
        } else {
            to.put(key, value);
        }
    }

    /** Notes that there is a write, and which record of the input it belongs to. */
    final void written() {
        isDirty = true;
        if (context != null) {
            context.recordMetadata().ifPresent(
                    record -> position.withComponent(record.topic(), record.partition(), record.offset()));
        }
    }

    @Override
    public final Position getPosition() {
        return position;
    }

    @Override
    @SuppressWarnings("deprecation")
    public void flush() {
        sync();
    }

    private void sync() {
        if (isDirty) {
            db().sync();
            isDirty = false;
        }
    }

    @Override
    public void commit(Map<TopicPartition, Long> offsets) {
        sync();
    }

    @Override
    public void close() {
        Esker closing = db;
        db = null;
        entries = null;
        if (closing != null) {
            closing.close();
        }
    }

    @Override
    public final boolean persistent() {
        return true;
    }

    @Override
    public final boolean isOpen() {
        return db != null;
    }
}
