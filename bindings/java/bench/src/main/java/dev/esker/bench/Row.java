package dev.esker.bench;

import dev.esker.bench.Store.Wait;
import java.util.Arrays;
import java.util.List;

/**
 * A line of the table.
 *
 * @param name its name
 * @param needs what commits must be able to wait for, or null
 * @param prepare what is done before, which is not measured
 * @param work the operations; returns how many items they have handled
 */
record Row(String name, Wait needs, Preparation prepare, Work work) {
    private static final int BATCH = 1000;
    private static final int SYNCED = 200;
    private static final int RANGE = 10;

    /** What is done before. */
    @FunctionalInterface
    interface Preparation {
        void run(Store store) throws Exception;
    }

    /** Operations. */
    @FunctionalInterface
    interface Work {
        int run(Store store, Data data) throws Exception;
    }

    static final List<Row> ALL = List.of(
            new Row("batches of 1,000", null, store -> {}, Row::load),
            new Row("get", null, Store::settle, (store, data) -> gets(store, data, false)),
            new Row("get, missing", null, store -> {}, (store, data) -> gets(store, data, true)),
            new Row("scan of all", null, store -> {}, Row::scan),
            new Row("range of 10", null, store -> {}, Row::ranges),
            puts("put", Wait.SYSTEM),
            mixed("9 gets, 1 put", Wait.SYSTEM),
            puts("put, nothing waited for", Wait.NOTHING),
            mixed("9 gets, 1 put, nothing waited for", Wait.NOTHING),
            new Row("put, synced", Wait.DISK, Store::sync, Row::putsSynced));

    private static int load(Store store, Data data) throws Exception {
        int items = data.keys.length;
        for (int from = 0; from < items; from += BATCH) {
            byte[][] keys = Arrays.copyOfRange(data.keys, from, Math.min(from + BATCH, items));
            byte[][] values = new byte[keys.length][];
            Arrays.setAll(values, n -> data.value());
            store.batch(keys, values);
        }
        return items;
    }

    private static int gets(Store store, Data data, boolean isMissing) throws Exception {
        int count = data.keys.length / 2;
        for (int n = 0; n < count; n++) {
            byte[] key = isMissing ? data.missing() : data.key();
            byte[] value = store.get(key);
            if (isMissing != (value == null)) {
                throw new IllegalStateException("a key that is missing, or should be");
            }
            if (!isMissing) {
                Bench.visit(key, value);
            }
        }
        return count;
    }

    private static int scan(Store store, Data data) throws Exception {
        int entries = store.scan(null, data.keys.length);
        if (entries != data.keys.length) {
            throw new IllegalStateException("a scan of " + entries + " entries");
        }
        return entries;
    }

    private static int ranges(Store store, Data data) throws Exception {
        int count = data.keys.length / 20;
        for (int n = 0; n < count; n++) {
            store.scan(data.key(), RANGE);
        }
        return count;
    }

    private static Row puts(String name, Wait wait) {
        return new Row(name, wait, store -> {}, (store, data) -> {
            int count = data.keys.length / 20;
            for (int n = 0; n < count; n++) {
                store.put(data.key(), data.value(), wait);
            }
            return count;
        });
    }

    private static int putsSynced(Store store, Data data) throws Exception {
        for (int n = 0; n < SYNCED; n++) {
            store.put(data.key(), data.value(), Wait.DISK);
        }
        return SYNCED;
    }

    private static Row mixed(String name, Wait wait) {
        return new Row(name, wait, store -> {}, (store, data) -> {
            int count = data.keys.length / 5;
            for (int n = 0; n < count; n++) {
                if (n % 10 == 0) {
                    store.put(data.key(), data.value(), wait);
                } else {
                    byte[] key = data.key();
                    Bench.visit(key, store.get(key));
                }
            }
            return count;
        });
    }
}
