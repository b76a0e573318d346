package main

// Badger, with the options that it recommends.
//
//	Store.Write -> one read-write transaction (write to a mapped WAL; msync with SyncWrites)
//	Reader      -> one read-only transaction; values are lent until the transaction ends

import (
	"bytes"
	"errors"
	"runtime"
	"time"

	"github.com/dgraph-io/badger/v4"

	"esker.invalid/bench/lab"
)

type badgerEngine struct{}

const (
	badgerProcs     = 128
	badgerThreshold = 1 << 10 // values of this many bytes and more are kept in the value log
)

func (badgerEngine) Name() string      { return "badger" }
func (badgerEngine) Module() string    { return "github.com/dgraph-io/badger/v4" }
func (badgerEngine) Isolation() string { return "serializable" }

func (badgerEngine) AsyncCommits() *lab.AsyncMode {
	return &lab.AsyncMode{Reached: lab.InSystem, Then: "on the device once it has been flushed into tables; its log is a mapped file", Pointer: "docs of WithSyncWrites"}
}

func (badgerEngine) Options() []lab.Option {
	return []lab.Option{
		lab.Set("DefaultOptions", "unchanged, except for the options below", "\"recommended options for good performance\"", "options.go, DefaultOptions"),
		lab.Set("GOMAXPROCS", "128", "\"we highly recommend setting a high number\": threads that wait for the device let others go on; its own tool sets as many", "docs/troubleshooting.md; badger/main.go"),
		lab.Set("Compression", "Snappy, the default", "the default", "options.go, DefaultOptions"),
		lab.Set("BlockCacheSize", "the suite's cache", "its cache of blocks", "docs of WithBlockCacheSize"),
		lab.Set("IndexCacheSize", "0, the default", "all indexes stay in memory", "docs of WithIndexCacheSize"),
		lab.Set("MemTableSize", "64 MiB or the suite's write buffer", "the default, or the suite's limit", "docs of WithMemTableSize"),
		lab.Set("ValueThreshold", "1 KiB", "the value log is its answer to large values; its own write benchmark has this threshold, the default is 1 MiB", "badger/cmd/write_bench.go, flag value-th; docs of WithValueThreshold"),
		lab.Set("DetectConflicts", "off where one thread writes", "its own write benchmark has it off; a single writer has no conflicts", "badger/cmd/write_bench.go, flag conflicts; docs of WithDetectConflicts"),
		lab.Set("WriteBatch", "not used", "a commit of the suite is a transaction that ends before the next one begins; WriteBatch, advised for bulk loads, commits in the background, when it likes", "docs/troubleshooting.md; docs of DB.NewWriteBatch"),
		lab.Set("sync commits, many writers", "WithSyncWrites(true)", "an msync of its log with each commit", "docs of WithSyncWrites"),
		lab.Set("sync commits, one writer", "WithSyncWrites(false), and DB.Sync after each commit", "the same two msyncs; the database need not be closed, which empties its cache, to go on without syncs", "docs of DB.Sync"),
		lab.Set("async and nosync commits", "WithSyncWrites(false)", "the default: survives the process, and a power cut loses the newest commits", "docs of WithSyncWrites"),
		lab.Set("key-only walks", "PrefetchValues false", "leaves values unread", "docs of IteratorOptions; quickstart, Key-only iteration"),
		lab.Set("range reads of values in tables", "PrefetchValues false", "values below ValueThreshold lie beside their keys: to fetch them ahead is a goroutine for nothing", "docs of IteratorOptions.PrefetchValues and WithValueThreshold"),
		lab.Set("range reads of values in the log", "PrefetchSize: what the row reads, at most 100", "fetching ahead beyond the range would be wasted work", "docs of IteratorOptions.PrefetchSize"),
		lab.Set("compaction", "close, open, close with CompactL0OnClose, open, Flatten, then RunValueLogGC(0.5) until nothing is rewritten", "its full compaction, all of it timed; nothing but closing brings what is in memory into tables, and Flatten may leave tables that are all in level 0 to its workers, which begin up to a second later", "docs of DB.Flatten, DB.RunValueLogGC and WithCompactL0OnClose"),
		lab.Set("transactions that read what they write", "DB.NewTransaction, tried again at once after ErrConflict", "its one kind", "docs of DB.NewTransaction and ErrConflict"),
		lab.Set("entries that expire", "Entry.WithTTL, in whole seconds, rounded down", "its own; merges drop what has expired", "docs of Entry.WithTTL; docs/quickstart.md, Setting Time To Live"),
		lab.Set("keyspaces", "prefixes of keys: 4 bytes in front of each", "a database of Badger has one order", "docs/quickstart.md, Prefix scans"),
	}
}

func (badgerEngine) Cannot(feature lab.Feature) string {
	if feature == lab.LargeTransactions {
		return "a transaction of Badger holds at most 15 % of a memtable (ErrTxnTooBig)"
	}
	return ""
}

func (badgerEngine) Open(dir string, options lab.OpenOptions) (lab.Store, error) {
	runtime.GOMAXPROCS(badgerProcs)
	store := &badgerStore{dir: dir, options: options, syncsItself: options.ConcurrentWrites > 1}
	return store, store.open()
}

func (badgerEngine) TransactionKinds() []lab.TransactionKind {
	return []lab.TransactionKind{lab.Optimistic}
}

func (e badgerEngine) OpenTransactions(dir string, options lab.OpenOptions, _ lab.TransactionKind) (lab.Transactions, error) {
	store, err := e.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return badgerTransactions{store.(*badgerStore)}, nil
}

// badgerTransactions are serializable: the engine compares the keys that a transaction has read with the
// commits since. A conflict is tried again at once.
type badgerTransactions struct{ *badgerStore }

func (s badgerTransactions) Transact(_ [][]byte, work func(lab.Transaction) error) (conflicts uint64, err error) {
	for ; ; conflicts++ {
		err := s.once(work)
		if !errors.Is(err, badger.ErrConflict) {
			return conflicts, err
		}
	}
}

func (s badgerTransactions) once(work func(lab.Transaction) error) error {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	if err := work(badgerTransaction{badgerWriter{txn}, badgerReader{txn: txn}}); err != nil {
		return tooLarge(err)
	}
	if err := txn.Commit(); err != nil || s.syncsItself || s.options.Durability != lab.Sync {
		return tooLarge(err)
	}
	return s.db.Sync()
}

func (s badgerTransactions) Scan(visit func(key, value []byte)) (uint64, error) {
	return s.Range(nil, ^uint64(0), visit)
}

func (e badgerEngine) OpenExpiring(dir string, options lab.OpenOptions) (lab.Expiring, error) {
	store, err := e.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return badgerTransactions{store.(*badgerStore)}, nil
}

// PutFor is one transaction. Badger counts whole seconds, rounded down.
func (s badgerTransactions) PutFor(key, value []byte, ttl time.Duration) error {
	return s.Write(func(w lab.Writer) error {
		if ttl == 0 {
			return w.Put(key, value)
		}
		// Until the commit, Badger keeps the slices that it is given.
		entry := badger.NewEntry(bytes.Clone(key), bytes.Clone(value)).WithTTL(ttl)
		return w.(badgerWriter).txn.SetEntry(entry)
	})
}

type badgerTransaction struct {
	badgerWriter
	reader badgerReader
}

func (t badgerTransaction) Get(key []byte, visit func([]byte)) (bool, error) {
	return t.reader.Get(key, visit)
}

type badgerStore struct {
	dir         string
	options     lab.OpenOptions
	syncsItself bool // with each commit; otherwise DB.Sync follows those that must
	compactsL0  bool // when it is closed
	db          *badger.DB
}

func (s *badgerStore) open() error {
	o := badger.DefaultOptions(s.dir).
		WithBlockCacheSize(s.options.CacheBytes).
		WithSyncWrites(s.syncsItself && s.options.Durability == lab.Sync).
		WithCompactL0OnClose(s.compactsL0).
		WithValueThreshold(badgerThreshold).
		WithDetectConflicts(s.options.ConcurrentWrites > 1).
		WithLogger(nil)
	if s.options.WriteBufferBytes > 0 {
		o = o.WithMemTableSize(s.options.WriteBufferBytes)
	}
	db, err := badger.Open(o)
	s.db = db
	return err
}

func (s *badgerStore) SetDurability(durability lab.Durability) error {
	if (durability == lab.Sync) == (s.options.Durability == lab.Sync) {
		return nil
	}
	s.options.Durability = durability
	// Earlier commits become durable.
	switch {
	case s.syncsItself:
		return s.reopen()
	case durability == lab.Sync:
		return s.db.Sync()
	}
	return nil
}

// reopen writes what is in memory into tables and syncs everything.
func (s *badgerStore) reopen() error {
	if err := s.db.Close(); err != nil {
		return err
	}
	return s.open()
}

func (s *badgerStore) Write(work func(lab.Writer) error) error {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	if err := work(badgerWriter{txn}); err != nil {
		return tooLarge(err)
	}
	if err := txn.Commit(); err != nil || s.syncsItself || s.options.Durability != lab.Sync {
		return tooLarge(err)
	}
	return s.db.Sync()
}

func tooLarge(err error) error {
	if errors.Is(err, badger.ErrTxnTooBig) {
		return lab.ErrTooLarge
	}
	return err
}

func (s *badgerStore) Reader() (lab.Reader, error) {
	return &badgerReader{s.db.NewTransaction(false), s.options.ValueBytes >= badgerThreshold}, nil
}

func (s *badgerStore) Get(key []byte, visit func([]byte)) (bool, error) {
	return lab.GetOnce(s, key, visit)
}

func (s *badgerStore) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	return lab.RangeOnce(s, from, limit, visit)
}

func (s *badgerStore) Compact() error {
	for _, s.compactsL0 = range []bool{true, false} {
		if err := s.reopen(); err != nil {
			return err
		}
	}
	if err := s.db.Flatten(runtime.NumCPU()); err != nil {
		return err
	}
	for {
		err := s.db.RunValueLogGC(0.5)
		if errors.Is(err, badger.ErrNoRewrite) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Reopen has nothing to do: closing and opening are a part of its compaction.
func (s *badgerStore) Reopen() error { return nil }

// Drain waits until no level asks for a compaction: three looks in a row, because its workers start within
// moments. Badger does not report flushes. The lab sees them as work of the process.
func (s *badgerStore) Drain(deadline time.Time) error {
	for quiet := 0; quiet < 3 && time.Now().Before(deadline); {
		quiet++
		for _, level := range s.db.Levels() {
			if level.Score >= 1 {
				quiet = 0
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (s *badgerStore) Close() error { return lab.CloseDB(&s.db) }

type badgerWriter struct{ txn *badger.Txn }

func (w badgerWriter) Put(key, value []byte) error {
	// Until the commit, Badger keeps the slices that it is given.
	return w.txn.Set(append([]byte(nil), key...), append([]byte(nil), value...))
}

func (w badgerWriter) Remove(key []byte) error {
	return w.txn.Delete(append([]byte(nil), key...))
}

type badgerReader struct {
	txn        *badger.Txn
	fetchAhead bool
}

func (r *badgerReader) Get(key []byte, visit func([]byte)) (bool, error) {
	item, err := r.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, item.Value(func(value []byte) error {
		visit(value)
		return nil
	})
}

func (r *badgerReader) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	options := badger.DefaultIteratorOptions
	options.PrefetchValues = r.fetchAhead
	options.PrefetchSize = int(min(limit, uint64(options.PrefetchSize)))
	iter := r.txn.NewIterator(options)
	defer iter.Close()
	seen := uint64(0)
	for iter.Seek(from); iter.Valid(); iter.Next() {
		item := iter.Item()
		err := item.Value(func(value []byte) error {
			visit(item.Key(), value)
			return nil
		})
		if err != nil {
			return seen, err
		}
		if seen++; seen == limit {
			break
		}
	}
	return seen, nil
}

func (r *badgerReader) Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error) {
	options := badger.DefaultIteratorOptions
	options.PrefetchValues = false
	iter := r.txn.NewIterator(options)
	defer iter.Close()
	seen := uint64(0)
	for iter.Seek(from); iter.Valid(); iter.Next() {
		visit(iter.Item().Key())
		if seen++; seen == limit {
			break
		}
	}
	return seen, nil
}

func (r *badgerReader) Len() (uint64, error) {
	return r.Keys(nil, ^uint64(0), func([]byte) {})
}

func (r *badgerReader) Close() error {
	r.txn.Discard()
	return nil
}
