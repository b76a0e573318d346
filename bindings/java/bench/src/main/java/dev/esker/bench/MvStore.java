package dev.esker.bench;

import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Set;
import org.h2.mvstore.MVMap;
import org.h2.mvstore.MVStore;
import org.h2.mvstore.type.ByteArrayDataType;

/** H2's MVStore. It commits when the benchmark says so, because its own thread would commit later. */
final class MvStore implements Store {
    private final MVStore store;
    private final MVMap<byte[], byte[]> map;

    MvStore(Path directory) {
        store = new MVStore.Builder().fileName(directory.resolve("data.mv").toString())
                .cacheSize((int) (Bench.CACHE_BYTES >> 20)).autoCommitDisabled().open();
        map = store.openMap("map", new MVMap.Builder<byte[], byte[]>()
                .keyType(ByteArrayDataType.INSTANCE).valueType(ByteArrayDataType.INSTANCE));
    }

    @Override
    public Set<Wait> waits() {
        return EnumSet.allOf(Wait.class);
    }

    @Override
    public void put(byte[] key, byte[] value, Wait wait) {
        map.put(key, value);
        if (wait != Wait.NOTHING) {
            store.commit();
        }
        if (wait == Wait.DISK) {
            store.sync();
        }
    }

    @Override
    public void batch(byte[][] keys, byte[][] values) {
        for (int n = 0; n < keys.length; n++) {
            map.put(keys[n], values[n]);
        }
        store.commit();
    }

    @Override
    public byte[] get(byte[] key) {
        return map.get(key);
    }

    @Override
    public int scan(byte[] from, int limit) {
        int count = 0;
        for (var cursor = map.cursor(from); count < limit && cursor.hasNext(); count++) {
            byte[] key = cursor.next();
            Bench.visit(key, cursor.getValue());
        }
        return count;
    }

    @Override
    public void settle() {
        store.compactFile(10_000);
    }

    @Override
    public void sync() {
        store.commit();
        store.sync();
    }

    @Override
    public void close() {
        store.close();
    }
}
