package main

// goleveldb: LevelDB in Go.
//
//	Store.Write -> one batch (one journal write, one fsync); beyond the write buffer a transaction
//	Reader      -> one snapshot; values are copied for Get and lent by iterators

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"

	"esker.invalid/bench/lab"
)

type goleveldbEngine struct{}

const (
	goleveldbWriteBufferBytes = 64 << 20
	goleveldbKeptBatchBytes   = 1 << 20
	goleveldbOpenFiles        = 16384
)

func (goleveldbEngine) Name() string      { return "goleveldb" }
func (goleveldbEngine) Module() string    { return "github.com/syndtr/goleveldb" }
func (goleveldbEngine) Isolation() string { return "atomic batches" }

func (goleveldbEngine) AsyncCommits() *lab.AsyncMode {
	return &lab.AsyncMode{Reached: lab.InSystem, Then: "on the device once it has been flushed into tables", Pointer: "docs of opt.WriteOptions; leveldb/db_write.go, writeJournal"}
}

func (goleveldbEngine) Options() []lab.Option {
	return []lab.Option{
		lab.Set("version", "the newest commit of 2022", "its one tag is of 2019, and its users (go-ethereum) build on the commit", "go.mod of go-ethereum"),
		lab.Set("BlockCacheCapacity", "the suite's cache", "its one block cache", "docs of opt.Options"),
		lab.Set("WriteBuffer", "64 MiB or the suite's write buffer", "what the other log-structured engines here have; the default is 4 MiB", "docs of opt.Options; go-ethereum gives a quarter of its cache"),
		lab.Set("Filter", "bloom, 10 bits", "as its README shows", "README, Usage"),
		lab.Set("OpenFilesCacheCapacity", "16384", "its tables are of 2 MiB: the default of 500 would open and close files all the time, and 4,096 are too few for 10 GB; Go lets a process open as many as its hard limit allows", "opt/options.go, OpenFilesCacheCapacity and DefaultCompactionTableSize; go-ethereum, ethdb/leveldb, gives what the system allows; Go, os/rlimit.go"),
		lab.Set("Compression", "Snappy, its default", "the default", "docs of opt.Options"),
		lab.Set("DisableSeeksCompaction", "true", "reads do not start merges: its main user sets it so", "go-ethereum, ethdb/leveldb, configureOptions; docs of opt.Options"),
		lab.Set("batches", "MakeBatchWithConfig with no GrowLimit, used again", "a batch of a million items doubles instead of being copied every 3,000 items; small batches cost no allocation", "docs of BatchConfig; putRec in db_write.go takes its batch from a pool"),
		lab.Set("async and nosync commits", "WriteOptions{Sync: false}, its default", "in the operating system when it returns", "docs of opt.WriteOptions"),
		lab.Set("compaction", "CompactRange over everything; then close and open, not timed", "its full compaction; replaced tables are removed minutes later, or by opening", "docs of DB.CompactRange; session_util.go, maxCachedTime"),
		lab.Set("keyspaces", "prefixes of keys: 4 bytes in front of each", "a database of LevelDB has one order", "docs of leveldb.DB"),
	}
}

func (goleveldbEngine) Cannot(lab.Feature) string { return "" }

func (goleveldbEngine) Open(dir string, options lab.OpenOptions) (lab.Store, error) {
	writeBuffer := int64(goleveldbWriteBufferBytes)
	if options.WriteBufferBytes > 0 {
		writeBuffer = options.WriteBufferBytes
	}
	store := &goleveldbStore{dir: dir, commit: opt.WriteOptions{Sync: options.Durability == lab.Sync}}
	store.options = opt.Options{
		BlockCacheCapacity:     int(options.CacheBytes),
		WriteBuffer:            int(writeBuffer),
		Filter:                 filter.NewBloomFilter(10),
		OpenFilesCacheCapacity: goleveldbOpenFiles,
		DisableSeeksCompaction: true,
	}
	return store, store.open()
}

type goleveldbStore struct {
	dir     string
	options opt.Options
	db      *leveldb.DB
	commit  opt.WriteOptions
}

func (s *goleveldbStore) open() (err error) {
	s.db, err = leveldb.OpenFile(s.dir, &s.options)
	return err
}

func (s *goleveldbStore) SetDurability(durability lab.Durability) error {
	wasSync := s.commit.Sync
	s.commit.Sync = durability == lab.Sync
	if wasSync || !s.commit.Sync {
		return nil
	}
	// A synced write makes the earlier ones in the journal durable. This one removes a key that no suite has.
	batch := new(leveldb.Batch)
	batch.Delete(nil)
	return s.db.Write(batch, &s.commit)
}

// goleveldbBatches are reused, except large ones.
var goleveldbBatches = sync.Pool{New: func() any {
	return leveldb.MakeBatchWithConfig(&leveldb.BatchConfig{GrowLimit: math.MaxInt})
}}

func (s *goleveldbStore) Write(work func(lab.Writer) error) error {
	batch := goleveldbBatches.Get().(*leveldb.Batch)
	defer func() {
		if len(batch.Dump()) <= goleveldbKeptBatchBytes {
			batch.Reset()
			goleveldbBatches.Put(batch)
		}
	}()
	if err := work(goleveldbWriter{batch}); err != nil {
		return err
	}
	return s.db.Write(batch, &s.commit)
}

func (s *goleveldbStore) Reader() (lab.Reader, error) {
	snapshot, err := s.db.GetSnapshot()
	return &goleveldbReader{snapshot, snapshot}, err
}

func (s *goleveldbStore) newest() *goleveldbReader { return &goleveldbReader{reader: s.db} }

func (s *goleveldbStore) Get(key []byte, visit func([]byte)) (bool, error) {
	return s.newest().Get(key, visit)
}

func (s *goleveldbStore) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	return s.newest().Range(from, limit, visit)
}

func (s *goleveldbStore) Compact() error {
	return s.db.CompactRange(util.Range{})
}

// Reopen removes replaced tables. goleveldb itself removes them minutes later, or when it opens.
func (s *goleveldbStore) Reopen() error {
	if err := s.Close(); err != nil {
		return err
	}
	return s.open()
}

// Drain waits until the engine's count of compactions stands still for half a second. The engine reports no
// more.
func (s *goleveldbStore) Drain(deadline time.Time) error {
	var before leveldb.DBStats
	for quiet := 0; quiet < 10 && time.Now().Before(deadline); quiet++ {
		var now leveldb.DBStats
		if err := s.db.Stats(&now); err != nil {
			return err
		}
		if now.IOWrite != before.IOWrite || now.IORead != before.IORead {
			quiet = 0
		}
		before = now
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (s *goleveldbStore) Close() error { return lab.CloseDB(&s.db) }

type goleveldbWriter struct{ batch *leveldb.Batch }

func (w goleveldbWriter) Put(key, value []byte) error {
	w.batch.Put(key, value)
	return nil
}

func (w goleveldbWriter) Remove(key []byte) error {
	w.batch.Delete(key)
	return nil
}

// goleveldbReader reads from a snapshot, or from the database for the newest state.
type goleveldbReader struct {
	reader   leveldb.Reader
	snapshot *leveldb.Snapshot
}

func (r *goleveldbReader) Get(key []byte, visit func([]byte)) (bool, error) {
	value, err := r.reader.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	visit(value)
	return true, nil
}

func (r *goleveldbReader) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	iter := r.reader.NewIterator(&util.Range{Start: from}, nil)
	defer iter.Release()
	seen := uint64(0)
	for iter.Next() {
		visit(iter.Key(), iter.Value())
		if seen++; seen == limit {
			break
		}
	}
	return seen, iter.Error()
}

func (r *goleveldbReader) Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error) {
	return r.Range(from, limit, func(key, _ []byte) { visit(key) })
}

func (r *goleveldbReader) Len() (uint64, error) {
	return r.Keys(nil, ^uint64(0), func([]byte) {})
}

func (r *goleveldbReader) Close() error {
	r.snapshot.Release()
	return nil
}
