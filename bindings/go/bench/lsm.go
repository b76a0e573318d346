package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/dgraph-io/badger/v4"
)

// badgerStore has the default options. One goroutine writes, so conflicts are not detected, as in Badger's
// own benchmark.
type badgerStore struct {
	db        *badger.DB
	directory string
}

func openBadger(directory string) (store, error) {
	s := &badgerStore{directory: directory}
	return s, s.open(false)
}

func (s *badgerStore) open(compactsAtEnd bool) (err error) {
	s.db, err = badger.Open(badger.DefaultOptions(s.directory).WithLogger(nil).WithDetectConflicts(false).
		WithBlockCacheSize(cacheBytes).WithCompactL0OnClose(compactsAtEnd))
	return err
}

func (s *badgerStore) durabilities() []durability { return []durability{buffered, onDisk} }

func (s *badgerStore) put(key, value []byte, durability durability) error {
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) })
	if err != nil || durability != onDisk {
		return err
	}
	return s.db.Sync()
}

func (s *badgerStore) batch(keys, values [][]byte) error {
	return s.db.Update(func(txn *badger.Txn) error {
		for n, key := range keys {
			if err := txn.Set(key, values[n]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *badgerStore) get(key []byte) (int, error) {
	length := -1
	err := s.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		return item.Value(func(value []byte) error {
			visit(key, value)
			length = len(value)
			return nil
		})
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return -1, nil
	}
	return length, err
}

func (s *badgerStore) scan(from []byte, limit int) (int, error) {
	entries := 0
	err := s.db.View(func(txn *badger.Txn) error {
		options := badger.DefaultIteratorOptions
		options.PrefetchValues = false // they lie beside their keys
		iterator := txn.NewIterator(options)
		defer iterator.Close()
		for iterator.Seek(from); iterator.Valid() && entries < limit; iterator.Next() {
			item := iterator.Item()
			err := item.Value(func(value []byte) error {
				visit(item.Key(), value)
				return nil
			})
			if err != nil {
				return err
			}
			entries++
		}
		return nil
	})
	return entries, err
}

// settle closes and opens the database: nothing else brings all that is in memory into tables.
func (s *badgerStore) settle() error {
	for _, compactsAtEnd := range []bool{true, false} {
		if err := errors.Join(s.db.Close(), s.open(compactsAtEnd)); err != nil {
			return err
		}
	}
	return s.db.Flatten(runtime.NumCPU())
}

func (s *badgerStore) sync() error  { return s.db.Sync() }
func (s *badgerStore) close() error { return s.db.Close() }

// pebbleStore has the options of Pebble's own benchmark. Without a sync a commit waits for nothing: there is
// no durability between.
type pebbleStore struct{ db *pebble.DB }

type quiet struct{}

func (quiet) Infof(string, ...any)            {}
func (quiet) Errorf(string, ...any)           {}
func (quiet) Fatalf(format string, of ...any) { pebble.DefaultLogger.Fatalf(format, of...) }

func openPebble(directory string) (store, error) {
	const memtableBytes = 64 << 20
	// Pebble takes the memory of its memtables out of the cache.
	cache := pebble.NewCache(cacheBytes + 2*memtableBytes)
	defer cache.Unref()
	o := &pebble.Options{
		Cache: cache, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{},
		MemTableSize: memtableBytes, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 2, L0StopWritesThreshold: 1000, LBaseMaxBytes: 64 << 20, MaxOpenFiles: 16384,
		CompactionConcurrencyRange: func() (int, int) { return 1, 3 },
	}
	o.Experimental.EnableColumnarBlocks = func() bool { return true }
	for n := range o.Levels {
		o.Levels[n].BlockSize, o.Levels[n].IndexBlockSize = 32<<10, 256<<10
		o.Levels[n].FilterPolicy, o.Levels[n].FilterType = bloom.FilterPolicy(10), pebble.TableFilter
	}
	o.Levels[len(o.Levels)-1].FilterPolicy = pebble.NoFilterPolicy
	o.FlushSplitBytes = o.TargetFileSizes[0]
	o.EnsureDefaults()
	db, err := pebble.Open(directory, o)
	return &pebbleStore{db}, err
}

func (s *pebbleStore) durabilities() []durability { return []durability{noWait, onDisk} }

func (s *pebbleStore) put(key, value []byte, durability durability) error {
	if durability == onDisk {
		return s.db.Set(key, value, pebble.Sync)
	}
	return s.db.Set(key, value, pebble.NoSync)
}

func (s *pebbleStore) batch(keys, values [][]byte) error {
	batch := s.db.NewBatch()
	for n, key := range keys {
		if err := batch.Set(key, values[n], nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
}

func (s *pebbleStore) get(key []byte) (int, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	visit(key, value)
	return len(value), closer.Close()
}

func (s *pebbleStore) scan(from []byte, limit int) (int, error) {
	iterator, err := s.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	entries := 0
	for valid := iterator.SeekGE(from); valid && entries < limit; valid = iterator.Next() {
		visit(iterator.Key(), iterator.Value())
		entries++
	}
	return entries, errors.Join(iterator.Error(), iterator.Close())
}

func (s *pebbleStore) settle() error {
	end := make([]byte, keyBytes+1)
	for n := range end {
		end[n] = 0xff
	}
	return errors.Join(s.db.Flush(), s.db.Compact(context.Background(), nil, end, true))
}

func (s *pebbleStore) sync() error  { return s.db.LogData(nil, pebble.Sync) }
func (s *pebbleStore) close() error { return s.db.Close() }
