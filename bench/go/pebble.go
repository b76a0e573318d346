package main

// Pebble, with the options of its own benchmark (cmd/pebble/db.go).
//
//	Store.Write -> one batch, committed (one write of the WAL, one fdatasync that concurrent commits share)
//	Reader      -> one snapshot; values are lent until the next call

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"esker.invalid/bench/lab"
)

type pebbleEngine struct{}

const (
	pebbleBallastBytes  = 1 << 30
	pebbleMemTableBytes = 64 << 20
	pebbleSeparateBytes = 1024 // values of this many bytes and more are kept in blob files
)

func (pebbleEngine) Name() string      { return "pebble" }
func (pebbleEngine) Module() string    { return "github.com/cockroachdb/pebble/v2" }
func (pebbleEngine) Isolation() string { return "atomic batches" }

func (pebbleEngine) AsyncCommits() *lab.AsyncMode {
	return &lab.AsyncMode{Reached: lab.InProcess, Then: "written by a background thread when a block of its log, 32 KiB, is full", Pointer: "record/log_writer.go, flushLoop"}
}

func (pebbleEngine) Options() []lab.Option {
	const own = "cmd/pebble/db.go, newPebbleDB"
	return []lab.Option{
		lab.Set("build", "with cgo; without, it is not run", "its cache and memtables are outside Go's heap with cgo only: inside, they would be the collector's, and count against GOMEMLIMIT", "internal/manual/manual_cgo.go, manual_nocgo.go"),
		lab.Set("CacheSize", "the suite's cache and two memtables", "its one block cache; Pebble takes the memory of its memtables out of it, which other engines' caches do not pay for", own+" has a flag for it; db.go, newMemTable, Cache.Reserve"),
		lab.Set("arenas of glibc's malloc", "1 (M_ARENA_MAX)", "its cache is C memory that many threads allocate: glibc's arenas keep two to three times as much, which under a limit of memory costs it the page cache; CockroachDB links jemalloc for it", "internal/manual/manual_cgo.go; cockroachdb/cockroach, c-deps/jemalloc"),
		lab.Set("ballast on the heap", "1 GiB that nothing touches, where GOMEMLIMIT is 3 GiB or more, or none is set", "its benchmark's: the collector runs less often; it occupies no memory, but counts against GOMEMLIMIT, so with less it would have the collector run all the time", own),
		lab.Set("MemTableSize, MemTableStopWritesThreshold", "64 MiB or the suite's write buffer, 4", "its benchmark's", own),
		lab.Set("L0CompactionThreshold, L0StopWritesThreshold, LBaseMaxBytes", "2, 1000, 64 MiB", "its benchmark's", own),
		lab.Set("CompactionConcurrencyRange", "1 to 3", "its benchmark's", own),
		lab.Set("BlockSize, IndexBlockSize", "32 KiB, 256 KiB", "its benchmark's", own),
		lab.Set("FilterPolicy", "bloom, 10 bits, none on the last level", "its benchmark's", own),
		lab.Set("Compression", "Snappy on every level, the default", "its benchmark leaves it alone", own+"; options.go, LevelOptions.EnsureL0Defaults"),
		lab.Set("FormatMajorVersion", "newest, with columnar blocks", "its benchmark's", own),
		lab.Set("value separation", "from 1 KiB on; of files that are 5 minutes old a fifth of garbage is collected", "its benchmark separates from 512 bytes on, and has none but values of 1 KiB to separate; the age is its own, but it leaves all garbage where it is for a later change", own+"; docs of ValueSeparationPolicy"),
		lab.Set("CompactionGarbageFractionForMaxConcurrency", "off", "its benchmark's", own),
		lab.Set("Comparer", "the default, by bytes", "its benchmark's comparer is for keys of CockroachDB", "docs of Options.Comparer"),
		lab.Set("async and nosync commits", "pebble.NoSync", "in the memory of the process until a block of 32 KiB of the log is full, which a background thread then writes; sound after a crash", "docs of WriteOptions.Sync; record/log_writer.go, flushLoop"),
		lab.Set("range reads", "a new iterator for each", "as its YCSB does", "cmd/pebble/ycsb.go"),
		lab.Set("compaction", "Flush, then Compact over all keys, in parallel; then close and open, not timed", "its full compaction; WAL files that are kept to be written over go when it closes", "docs of DB.Compact"),
		lab.Set("keyspaces", "prefixes of keys: 4 bytes in front of each", "Pebble has no column families", "README, RocksDB Compatibility"),
	}
}

func (pebbleEngine) Cannot(feature lab.Feature) string { return "" }

// pebbleBallast is held and never touched.
var pebbleBallast []byte

func takePebbleBallast() {
	if limit := debug.SetMemoryLimit(-1); pebbleBallast == nil && limit >= 3*pebbleBallastBytes { // -1 asks and sets nothing
		pebbleBallast = make([]byte, pebbleBallastBytes)
	}
}

func (pebbleEngine) Open(dir string, options lab.OpenOptions) (lab.Store, error) {
	if !builtWithCgo() {
		return nil, errors.New("built without cgo, Pebble's cache is on Go's heap: install a C compiler, or set CGO_ENABLED=1, and build the program again")
	}
	takePebbleBallast()
	store := &pebbleStore{dir: dir, options: options, commit: commitOptions(options.Durability)}
	return store, store.open()
}

func builtWithCgo() bool {
	info, isThere := debug.ReadBuildInfo()
	return !isThere || !slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
}

func (s *pebbleStore) open() (err error) {
	options := s.options
	memTableBytes := uint64(pebbleMemTableBytes)
	if options.WriteBufferBytes > 0 {
		memTableBytes = uint64(options.WriteBufferBytes)
	}
	cache := pebble.NewCache(options.CacheBytes + 2*int64(memTableBytes))
	defer cache.Unref()
	o := &pebble.Options{
		Cache:                       cache,
		FormatMajorVersion:          pebble.FormatNewest,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                16384,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: 4,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 3 },
		Logger:                      quiet{},
	}
	o.Experimental.EnableColumnarBlocks = func() bool { return true }
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled:               true,
			MinimumSize:           pebbleSeparateBytes,
			MaxBlobReferenceDepth: 10,
			TargetGarbageRatio:    0.2,
			RewriteMinimumAge:     5 * time.Minute,
		}
	}
	o.Experimental.CompactionGarbageFractionForMaxConcurrency = func() float64 { return -1 }
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10
		o.Levels[i].IndexBlockSize = 256 << 10
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].FilterType = pebble.TableFilter
	}
	o.Levels[6].FilterPolicy = pebble.NoFilterPolicy
	o.FlushSplitBytes = o.TargetFileSizes[0]
	o.EnsureDefaults()
	s.db, err = pebble.Open(s.dir, o)
	return err
}

// quiet drops what Pebble would print.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}

type pebbleStore struct {
	dir     string
	options lab.OpenOptions
	db      *pebble.DB
	commit  *pebble.WriteOptions
}

func commitOptions(durability lab.Durability) *pebble.WriteOptions {
	if durability == lab.Sync {
		return pebble.Sync
	}
	return pebble.NoSync
}

func (s *pebbleStore) SetDurability(durability lab.Durability) error {
	before := s.commit
	s.commit = commitOptions(durability)
	if before == pebble.NoSync && s.commit == pebble.Sync {
		// An empty synced record makes the earlier ones in the log durable.
		return s.db.LogData(nil, pebble.Sync)
	}
	return nil
}

func (s *pebbleStore) Write(work func(lab.Writer) error) (err error) {
	defer func() {
		if cause, isError := recover().(error); isError && errors.Is(cause, pebble.ErrBatchTooLarge) {
			err = lab.Unsupported{Why: "a batch of Pebble holds at most 4 GiB"}
		}
	}()
	batch := s.db.NewBatch()
	err = work(pebbleWriter{batch})
	if err == nil {
		err = batch.Commit(s.commit)
	}
	return errors.Join(err, batch.Close())
}

func (s *pebbleStore) Reader() (lab.Reader, error) {
	snapshot := s.db.NewSnapshot()
	return &pebbleReader{snapshot, snapshot.Close}, nil
}

func (s *pebbleStore) newest() *pebbleReader { return &pebbleReader{reader: s.db} }

func (s *pebbleStore) Get(key []byte, visit func([]byte)) (bool, error) {
	return s.newest().Get(key, visit)
}

func (s *pebbleStore) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	return s.newest().Range(from, limit, visit)
}

func (s *pebbleStore) Compact() error {
	if err := s.db.Flush(); err != nil {
		return err
	}
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	var last []byte
	if iter.Last() {
		last = append(append(last, iter.Key()...), 0)
	}
	if err := iter.Close(); err != nil || last == nil {
		return err
	}
	return s.db.Compact(context.Background(), nil, last, true)
}

// Reopen removes WAL files, of 64 MiB each, that Pebble keeps for reuse while it is open.
func (s *pebbleStore) Reopen() error {
	if err := s.Close(); err != nil {
		return err
	}
	return s.open()
}

// Drain waits until nothing is compacted or flushed and no compaction is pending, or until nothing has begun
// for half a second: Pebble ignores pending compactions that are too small.
func (s *pebbleStore) Drain(deadline time.Time) error {
	const step, still = 10 * time.Millisecond, 500 * time.Millisecond
	for idle := time.Duration(0); idle < still && time.Now().Before(deadline); idle += step {
		m := s.db.Metrics()
		if m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 {
			idle = 0
		} else if m.Compact.EstimatedDebt == 0 {
			return nil
		}
		time.Sleep(step)
	}
	return nil
}

func (s *pebbleStore) Close() error { return lab.CloseDB(&s.db) }

type pebbleWriter struct{ batch *pebble.Batch }

func (w pebbleWriter) Put(key, value []byte) error { return w.batch.Set(key, value, nil) }
func (w pebbleWriter) Remove(key []byte) error     { return w.batch.Delete(key, nil) }

// pebbleReader reads from a snapshot, or from the database for the newest state.
type pebbleReader struct {
	reader pebble.Reader
	close  func() error
}

func (r *pebbleReader) Get(key []byte, visit func([]byte)) (bool, error) {
	value, closer, err := r.reader.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	visit(value)
	return true, closer.Close()
}

func (r *pebbleReader) walk(from []byte, limit uint64, visit func(*pebble.Iterator) error) (uint64, error) {
	iter, err := r.reader.NewIter(nil)
	if err != nil {
		return 0, err
	}
	seen := uint64(0)
	for valid := iter.SeekGE(from); valid; valid = iter.Next() {
		if err := visit(iter); err != nil {
			return seen, errors.Join(err, iter.Close())
		}
		if seen++; seen == limit {
			break
		}
	}
	return seen, errors.Join(iter.Error(), iter.Close())
}

func (r *pebbleReader) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	return r.walk(from, limit, func(iter *pebble.Iterator) error {
		value, err := iter.ValueAndErr()
		visit(iter.Key(), value)
		return err
	})
}

func (r *pebbleReader) Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error) {
	return r.walk(from, limit, func(iter *pebble.Iterator) error {
		visit(iter.Key())
		return nil
	})
}

func (r *pebbleReader) Len() (uint64, error) {
	return r.Keys(nil, ^uint64(0), func([]byte) {})
}

func (r *pebbleReader) Close() error { return r.close() }
