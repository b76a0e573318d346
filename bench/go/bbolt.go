package main

// bbolt, set up as etcd sets it up, which the same people keep.
//
//	Store.Write -> one read-write transaction (pages and freelist written, fdatasync, meta page, fdatasync)
//	Reader      -> one read-only transaction; values are lent from the map
//	Keyspaces   -> top-level buckets: a transaction takes any of them by name

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"esker.invalid/bench/lab"
)

type bboltEngine struct{}

// bboltBucket is the bucket of the map.
var bboltBucket = []byte("map")

const (
	bboltFile         = "data.bbolt"
	bboltMapBytes     = 64 << 30
	bboltCompactBytes = 64 << 10 // of one transaction of a compaction: the default of its command
	// How full a split leaves a page where keys ascend, as etcd sets it. bbolt.Compact leaves no space, because
	// no key comes between those that it writes. Here one of several writers may be late.
	bboltAscendingFill = 0.9
)

func (bboltEngine) Name() string      { return "bbolt" }
func (bboltEngine) Module() string    { return "go.etcd.io/bbolt" }
func (bboltEngine) Isolation() string { return "serializable" }

func (bboltEngine) AsyncCommits() *lab.AsyncMode {
	return nil
}

func (bboltEngine) Options() []lab.Option {
	return []lab.Option{
		lab.Set("FreelistType", "hashmap", "faster than the default array on large files, and its coming default", "etcd, server/storage/backend/backend.go; bbolt, db.go"),
		lab.Set("NoFreelistSync", "true", "the freelist is not written with each commit but found again at opening, which looks at every page", "etcd, server/storage/backend/backend.go; docs of Options.NoFreelistSync"),
		lab.Set("InitialMmapSize", "64 GiB", "address space ahead of need, so that a growing file never waits for readers", "docs of Options.InitialMmapSize; etcd gives 10 GiB"),
		lab.Set("cache", "the page cache", "bbolt has no cache of its own", "README, Caveats & Limitations"),
		lab.Set("FillPercent", "0.9 in each transaction where a suite's keys ascend, elsewhere the default of 0.5", "half of each page that an append has left behind would stay empty; for random inserts its README advises against it", "docs of Bucket.FillPercent; etcd, server/storage/backend/batch_tx.go, UnsafeSeqPut"),
		lab.Set("nosync commits", "DB.NoSync", "switched on for those rows only", "docs of DB.NoSync"),
		lab.Set("many writers at once", "DB.Batch with MaxBatchSize: as many as there are", "its way to share a sync; with its default of 1,000 a batch of fewer writers would wait 10 ms each time for more", "README, Batch read-write transactions; docs of DB.MaxBatchSize"),
		lab.Set("compression", "none", "bbolt has none", ""),
		lab.Set("MmapFlags", "0, the default", "etcd sets MAP_POPULATE, which reads all of the file when it is opened: work that no other engine does, and more than memory holds in some suites", "docs of Options.MmapFlags"),
		lab.Set("compaction", "bbolt.Compact into a new file, renamed over the old", "its only compaction, as its command does it with --no-sync; the new file is synced before it is renamed, and opened, which is a part of it and timed", "README; docs of Compact"),
		lab.Set("keyspaces", "top-level buckets, all created in one transaction, and deleted in one", "its own; a bucket is found by its name in each transaction that uses it", "README, Using buckets"),
	}
}

func (bboltEngine) Cannot(feature lab.Feature) string {
	switch feature {
	case lab.AsyncCommits:
		return "bbolt has no safe async commit: with DB.NoSync a power cut may leave a broken database"
	case lab.LargeTransactions:
		return "bbolt splits pages only at commit; its README advises against more than 100,000 random inserts into a new bucket in one transaction"
	}
	return ""
}

func (bboltEngine) Open(dir string, options lab.OpenOptions) (lab.Store, error) {
	store, err := newBboltStore(dir, options)
	if err != nil {
		return nil, err
	}
	return store, store.open()
}

func newBboltStore(dir string, options lab.OpenOptions) (*bboltStore, error) {
	if options.Durability == lab.Async {
		return nil, lab.Unsupported{Why: bboltEngine{}.Cannot(lab.AsyncCommits)}
	}
	fill := bolt.DefaultFillPercent
	if options.AscendingKeys {
		fill = bboltAscendingFill
	}
	return &bboltStore{
		path: filepath.Join(dir, bboltFile), writers: int(options.ConcurrentWrites), fill: fill, noSync: options.Durability == lab.NoSync,
	}, nil
}

type bboltStore struct {
	path    string
	db      *bolt.DB
	writers int     // several share a transaction
	fill    float64 // of a page that is split
	noSync  bool
}

// openFile opens the database, whatever is in it.
func (s *bboltStore) openFile() error {
	options := bolt.Options{
		Timeout:         time.Second,
		FreelistType:    bolt.FreelistMapType,
		NoFreelistSync:  true,
		InitialMmapSize: bboltMapBytes,
	}
	db, err := bolt.Open(s.path, 0o644, &options)
	if err != nil {
		return err
	}
	s.db = db
	db.NoSync, db.MaxBatchSize = s.noSync, s.writers
	return nil
}

func (s *bboltStore) open() error {
	if err := s.openFile(); err != nil {
		return err
	}
	isThere := false
	err := s.db.View(func(tx *bolt.Tx) error {
		isThere = tx.Bucket(bboltBucket) != nil
		return nil
	})
	if err != nil || isThere {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(bboltBucket)
		return err
	})
}

func (s *bboltStore) SetDurability(durability lab.Durability) error {
	if durability == lab.Async {
		return lab.Unsupported{Why: bboltEngine{}.Cannot(lab.AsyncCommits)}
	}
	wasNoSync := s.noSync
	s.noSync = durability == lab.NoSync
	s.db.NoSync = s.noSync
	if wasNoSync && !s.noSync {
		return s.db.Sync()
	}
	return nil
}

func (s *bboltStore) Write(work func(lab.Writer) error) error {
	update := s.db.Update
	if s.writers > 1 {
		update = s.db.Batch
	}
	return update(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(bboltBucket)
		bucket.FillPercent = s.fill // which bbolt forgets with the transaction
		return work(bboltWriter{bucket})
	})
}

func (s *bboltStore) Reader() (lab.Reader, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &bboltReader{tx, tx.Bucket(bboltBucket)}, nil
}

func (s *bboltStore) Get(key []byte, visit func([]byte)) (bool, error) {
	return lab.GetOnce(s, key, visit)
}

func (s *bboltStore) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	return lab.RangeOnce(s, from, limit, visit)
}

func (s *bboltStore) Compact() error {
	compacted := s.path + ".compacted"
	target, err := bolt.Open(compacted, 0o644, &bolt.Options{
		NoFreelistSync: true, FreelistType: bolt.FreelistMapType, NoSync: true, // synced once, before it takes the old one's place
	})
	if err != nil {
		return err
	}
	if err := bolt.Compact(target, s.db, bboltCompactBytes); err != nil {
		return err
	}
	if err := errors.Join(target.Sync(), target.Close()); err != nil {
		return err
	}
	if err := s.db.Close(); err != nil {
		return err
	}
	if err := os.Rename(compacted, s.path); err != nil {
		return err
	}
	return s.open()
}

func (s *bboltStore) Drain(time.Time) error { return nil }

// Reopen has nothing to do: the compacted file was opened.
func (s *bboltStore) Reopen() error { return nil }
func (s *bboltStore) Close() error  { return lab.CloseDB(&s.db) }

type bboltWriter struct{ bucket *bolt.Bucket }

func (w bboltWriter) Put(key, value []byte) error {
	// Until the commit, bbolt keeps the value that it is given; of the key it makes a copy itself.
	return w.bucket.Put(key, bytes.Clone(value))
}

func (w bboltWriter) Remove(key []byte) error { return w.bucket.Delete(key) }

type bboltReader struct {
	tx     *bolt.Tx
	bucket *bolt.Bucket
}

func (r *bboltReader) Get(key []byte, visit func([]byte)) (bool, error) {
	value := r.bucket.Get(key)
	if value == nil {
		return false, nil
	}
	visit(value)
	return true, nil
}

func (r *bboltReader) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	cursor := r.bucket.Cursor()
	seen := uint64(0)
	for key, value := cursor.Seek(from); key != nil; key, value = cursor.Next() {
		visit(key, value)
		if seen++; seen == limit {
			break
		}
	}
	return seen, nil
}

func (r *bboltReader) Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error) {
	return r.Range(from, limit, func(key, _ []byte) { visit(key) })
}

func (r *bboltReader) Len() (uint64, error) { return uint64(r.bucket.Stats().KeyN), nil }
func (r *bboltReader) Close() error         { return r.tx.Rollback() }

func (bboltEngine) TransactionKinds() []lab.TransactionKind {
	return []lab.TransactionKind{lab.OneWriter}
}

func (e bboltEngine) OpenTransactions(dir string, options lab.OpenOptions, _ lab.TransactionKind) (lab.Transactions, error) {
	store, err := e.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return bboltTransactions{store.(*bboltStore)}, nil
}

// bboltTransactions take turns. As in Write, several waiting ones may share one transaction of bbolt.
type bboltTransactions struct{ *bboltStore }

func (s bboltTransactions) Transact(_ [][]byte, work func(lab.Transaction) error) (uint64, error) {
	return 0, s.Write(func(w lab.Writer) error { return work(bboltTransaction{w.(bboltWriter)}) })
}

func (s bboltTransactions) Scan(visit func(key, value []byte)) (uint64, error) {
	return s.Range(nil, ^uint64(0), visit)
}

type bboltTransaction struct{ bboltWriter }

func (t bboltTransaction) Get(key []byte, visit func([]byte)) (bool, error) {
	value := t.bucket.Get(key)
	if value != nil {
		visit(value)
	}
	return value != nil, nil
}

func (bboltEngine) OpenKeyspaces(dir string, options lab.OpenOptions, count uint32) (lab.Keyspaces, error) {
	store, err := newBboltStore(dir, options)
	if err != nil {
		return nil, err
	}
	if err := store.openFile(); err != nil {
		return nil, err
	}
	isNew := false
	err = store.db.View(func(tx *bolt.Tx) error {
		first, _ := tx.Cursor().First()
		isNew = first == nil
		return nil
	})
	if err == nil && isNew {
		err = store.db.Update(func(tx *bolt.Tx) error {
			for keyspace := range count {
				if _, err := tx.CreateBucket(bboltKeyspace(keyspace)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return &bboltKeyspaces{store}, err
}

// bboltKeyspace is the name of the bucket of a keyspace.
func bboltKeyspace(keyspace uint32) []byte { return binary.BigEndian.AppendUint32(nil, keyspace) }

type bboltKeyspaces struct{ store *bboltStore }

func (k *bboltKeyspaces) Write(work func(lab.KeyspaceWriter) error) error {
	return k.store.db.Update(func(tx *bolt.Tx) error { return work(bboltKeyspaceWriter{tx}) })
}

// read runs a read on the bucket of a keyspace, if the bucket exists.
func (k *bboltKeyspaces) read(keyspace uint32, read func(*bboltReader) error) error {
	return k.store.db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(bboltKeyspace(keyspace))
		if bucket == nil {
			return nil
		}
		return read(&bboltReader{tx, bucket})
	})
}

func (k *bboltKeyspaces) Get(keyspace uint32, key []byte, visit func([]byte)) (found bool, err error) {
	err = k.read(keyspace, func(reader *bboltReader) (err error) {
		found, err = reader.Get(key, visit)
		return err
	})
	return found, err
}

func (k *bboltKeyspaces) Range(keyspace uint32, from []byte, limit uint64, visit func(key, value []byte)) (seen uint64, err error) {
	err = k.read(keyspace, func(reader *bboltReader) (err error) {
		seen, err = reader.Range(from, limit, visit)
		return err
	})
	return seen, err
}

func (k *bboltKeyspaces) RemoveKeyspaces(from, to uint32) error {
	err := k.store.db.Update(func(tx *bolt.Tx) error {
		for keyspace := from; keyspace < to; keyspace++ {
			if err := tx.DeleteBucket(bboltKeyspace(keyspace)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !k.store.noSync {
		return err
	}
	return k.store.db.Sync()
}

func (k *bboltKeyspaces) Drain(deadline time.Time) error { return k.store.Drain(deadline) }
func (k *bboltKeyspaces) Close() error                   { return k.store.Close() }

type bboltKeyspaceWriter struct{ tx *bolt.Tx }

func (w bboltKeyspaceWriter) Put(keyspace uint32, key, value []byte) error {
	bucket := w.tx.Bucket(bboltKeyspace(keyspace))
	if bucket == nil {
		return fmt.Errorf("keyspace %d is not there", keyspace)
	}
	return bboltWriter{bucket}.Put(key, value)
}
