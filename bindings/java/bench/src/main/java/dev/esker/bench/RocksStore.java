package dev.esker.bench;

import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Set;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.CompactRangeOptions;
import org.rocksdb.CompactRangeOptions.BottommostLevelCompaction;
import org.rocksdb.CompressionType;
import org.rocksdb.FlushOptions;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/** RocksDB with what its documentation advises: a cache, filters of 10 bits, LZ4. */
final class RocksStore implements Store {
    static {
        RocksDB.loadLibrary();
    }

    private final LRUCache cache = new LRUCache(Bench.CACHE_BYTES);
    private final BloomFilter filter = new BloomFilter(10);
    private final Options options;
    private final WriteOptions buffered = new WriteOptions();
    private final WriteOptions synced = new WriteOptions().setSync(true);
    private final RocksDB db;

    RocksStore(Path directory) throws RocksDBException {
        options = new Options()
                .setCreateIfMissing(true)
                .setMaxBackgroundJobs(6)
                .setBytesPerSync(1 << 20)
                .setCompressionType(CompressionType.LZ4_COMPRESSION)
                .setTableFormatConfig(
                        new BlockBasedTableConfig().setBlockCache(cache).setFilterPolicy(filter));
        db = RocksDB.open(options, directory.toString());
    }

    @Override
    public Set<Wait> waits() {
        return EnumSet.of(Wait.SYSTEM, Wait.DISK);
    }

    @Override
    public void put(byte[] key, byte[] value, Wait wait) throws RocksDBException {
        db.put(wait == Wait.DISK ? synced : buffered, key, value);
    }

    @Override
    public void batch(byte[][] keys, byte[][] values) throws RocksDBException {
        try (var batch = new WriteBatch()) {
            for (int n = 0; n < keys.length; n++) {
                batch.put(keys[n], values[n]);
            }
            db.write(buffered, batch);
        }
    }

    @Override
    public byte[] get(byte[] key) throws RocksDBException {
        return db.get(key);
    }

    @Override
    public int scan(byte[] from, int limit) throws RocksDBException {
        int count = 0;
        try (var read = new ReadOptions(); var iterator = db.newIterator(read)) {
            if (from == null) {
                iterator.seekToFirst();
            } else {
                iterator.seek(from);
            }
            for (; count < limit && iterator.isValid(); iterator.next()) {
                Bench.visit(iterator.key(), iterator.value());
                count++;
            }
            iterator.status();
        }
        return count;
    }

    @Override
    public void settle() throws RocksDBException {
        try (var flush = new FlushOptions().setWaitForFlush(true); var all = new CompactRangeOptions()
                .setBottommostLevelCompaction(BottommostLevelCompaction.kForce)) {
            db.flush(flush);
            db.compactRange(null, null, null, all);
        }
    }

    @Override
    public void sync() throws RocksDBException {
        db.flushWal(true);
    }

    @Override
    public void close() {
        db.close();
        options.close();
        buffered.close();
        synced.close();
        filter.close();
        cache.close();
    }
}
