package dev.esker.bench;

import dev.esker.Durability;
import dev.esker.Esker;
import dev.esker.Keyspace;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Set;

/** Esker with its default options. */
final class EskerStore implements Store {
    private final Esker db;
    private final Keyspace map;
    private final Keyspace none;
    private final Keyspace synced;

    EskerStore(Path directory) {
        db = Esker.options().memory(Bench.CACHE_BYTES).durability(Durability.BUFFERED).open(directory);
        map = db.keyspace("map");
        none = map.withDurability(Durability.NONE);
        synced = map.withDurability(Durability.SYNC);
    }

    @Override
    public Set<Wait> waits() {
        return EnumSet.allOf(Wait.class);
    }

    @Override
    public void put(byte[] key, byte[] value, Wait wait) {
        switch (wait) {
            case NOTHING -> none.put(key, value);
            case SYSTEM -> map.put(key, value);
            case DISK -> synced.put(key, value);
        }
    }

    @Override
    public void batch(byte[][] keys, byte[][] values) {
        try (var batch = db.batch()) {
            var writes = batch.keyspace(map);
            for (int n = 0; n < keys.length; n++) {
                writes.put(keys[n], values[n]);
            }
            batch.commit();
        }
    }

    @Override
    public byte[] get(byte[] key) {
        return map.get(key);
    }

    @Override
    public int scan(byte[] from, int limit) {
        int count = 0;
        try (var scan = map.range(from, null).limit(limit)) {
            for (var entry : scan) {
                Bench.visit(entry.key(), entry.value());
                count++;
            }
        }
        return count;
    }

    @Override
    public void settle() {
        db.compact();
    }

    @Override
    public void sync() {
        db.sync();
    }

    @Override
    public void close() {
        db.close();
    }
}
