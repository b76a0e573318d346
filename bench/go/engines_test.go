package main

// Adapters beside the interface: an opening makes no sync of its own, and a compaction includes what is in
// memory.

import (
	"math"
	"runtime/debug"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"esker.invalid/bench/lab"
)

func TestBboltOpensWithoutAWriteAndWaitsForNoMoreWritersThanThereAre(t *testing.T) {
	dir := t.TempDir()
	options := lab.OpenOptions{Durability: lab.NoSync, ConcurrentWrites: 8}
	open := func() *bboltStore {
		store, err := bboltEngine{}.Open(dir, options)
		if err != nil {
			t.Fatal(err)
		}
		return store.(*bboltStore)
	}
	store := open()
	f := &fixture{T: t, store: store}
	var writers sync.WaitGroup
	for range options.ConcurrentWrites {
		writers.Go(func() {
			for i := range 20 {
				f.put(numbered(i))
			}
		})
	}
	writers.Wait()
	f.must(store.Compact())
	if store.db.MaxBatchSize != 8 || !store.db.NoSync {
		t.Error("a compaction changed the options")
	}
	f.must(store.Close())
	store = open()
	stats := store.db.Stats().TxStats
	if writes := stats.GetWrite(); writes != 0 || store.db.MaxBatchSize != 8 {
		t.Error(writes, store.db.MaxBatchSize)
	}
	f.must(store.Close())
}

func TestBboltFillsItsPagesWhereKeysAscend(t *testing.T) {
	const batches, batch = 20, 500
	for _, isAscending := range []bool{true, false} {
		store, err := bboltEngine{}.Open(t.TempDir(), lab.OpenOptions{Durability: lab.NoSync, AscendingKeys: isAscending})
		f := &fixture{T: t, store: store}
		f.must(err)
		for first := range batches {
			items := make([]item, batch)
			for i := range items {
				items[i] = numbered(first*batch + i)
			}
			f.put(items...)
		}
		f.must(store.(*bboltStore).db.View(func(tx *bolt.Tx) error {
			stats := tx.Bucket(bboltBucket).Stats()
			if used := float64(stats.LeafInuse) / float64(stats.LeafAlloc); (used > 0.8) != isAscending {
				t.Errorf("ascending %t: %.2f of the leaves are in use", isAscending, used)
			}
			return nil
		}))
		f.must(store.Close())
	}
}

func TestPebbleHasItsBallastWhereTheLimitOfMemoryAllowsIt(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer func() { pebbleBallast = nil }()
	for _, c := range []struct{ limit, bytes int }{{448 << 20, 0}, {3584 << 20, pebbleBallastBytes}, {math.MaxInt64, pebbleBallastBytes}} {
		pebbleBallast = nil
		debug.SetMemoryLimit(int64(c.limit))
		takePebbleBallast()
		if len(pebbleBallast) != c.bytes {
			t.Errorf("limit %d: %d bytes", c.limit, len(pebbleBallast))
		}
	}
}

func TestBadgerCompactsWhatIsInMemory(t *testing.T) {
	store, err := badgerEngine{}.Open(t.TempDir(), lab.OpenOptions{CacheBytes: 64 << 20, Durability: lab.NoSync})
	f := &fixture{T: t, store: store}
	f.must(err)
	for i := range 100 {
		f.put(numbered(i))
	}
	f.must(store.Compact())
	levels := 0
	for _, level := range store.(*badgerStore).db.Levels() {
		if level.NumTables > 0 {
			levels++
		}
	}
	if levels != 1 {
		t.Errorf("tables on %d levels", levels)
	}
	f.must(store.Close())
}
