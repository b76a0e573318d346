// Package ethdb is a key-value store of go-ethereum (ethdb.KeyValueStore) in a keyspace of Esker.
package ethdb

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/ethdb"

	"esker.dev/esker"
)

// Store is a store in a keyspace. Close closes its database.
type Store struct {
	db *esker.DB
	ks *esker.Keyspace
}

var _ ethdb.KeyValueStore = (*Store)(nil)

// New returns the store in a keyspace of a database, which belongs to the store from then on.
func New(db *esker.DB, keyspace string) (*Store, error) {
	ks, err := db.Keyspace(keyspace)
	if err != nil {
		return nil, err
	}
	return &Store{db, ks}, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Has returns whether a key exists.
func (s *Store) Has(key []byte) (bool, error) { return s.ks.Contains(key) }

// Get returns the value of a key, or esker.ErrNotFound.
func (s *Store) Get(key []byte) ([]byte, error) { return s.ks.Get(key) }

// Put sets a key to a value.
func (s *Store) Put(key, value []byte) error { return s.ks.Put(key, value) }

// Delete removes a key.
func (s *Store) Delete(key []byte) error { return s.ks.Delete(key) }

// DeleteRange removes the keys from start on, below end. nil: no bound.
func (s *Store) DeleteRange(start, end []byte) error { return s.ks.DeleteRange(start, end) }

// Stat returns the figures of the database, a line each.
func (s *Store) Stat() (string, error) {
	figures, err := s.db.Stats()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		fmt.Fprintf(&text, "%s: %v\n", name, figures[name])
	}
	return text.String(), err
}

// SyncKeyValue makes all writes durable.
func (s *Store) SyncKeyValue() error { return s.db.Sync() }

// Compact compacts the whole database, whatever the range is.
func (s *Store) Compact(start, limit []byte) error { return s.db.Compact() }

// NewIterator returns an iterator over the keys with a prefix, from prefix + start on.
func (s *Store) NewIterator(prefix, start []byte) ethdb.Iterator {
	first := append(bytes.Clone(prefix), start...)
	next, stop := iter.Pull2(s.ks.Range(first, after(prefix)))
	return &iterator{ks: s.ks, next: next, stop: stop}
}

// after returns the first key behind those with a prefix, or nil if there is none.
func after(prefix []byte) []byte {
	for at := len(prefix) - 1; at >= 0; at-- {
		if prefix[at] != 0xFF {
			end := bytes.Clone(prefix[:at+1])
			end[at]++
			return end
		}
	}
	return nil
}

type iterator struct {
	ks         *esker.Keyspace
	next       func() ([]byte, []byte, bool)
	stop       func()
	key, value []byte
	err        error
}

func (i *iterator) Next() bool {
	var ok bool
	i.key, i.value, ok = i.next()
	if !ok && i.err == nil {
		i.err = i.ks.Err()
	}
	return ok
}

func (i *iterator) Error() error  { return i.err }
func (i *iterator) Key() []byte   { return i.key }
func (i *iterator) Value() []byte { return i.value }
func (i *iterator) Release() {
	i.stop()
	i.key, i.value = nil, nil
}

// NewBatch returns an empty batch.
func (s *Store) NewBatch() ethdb.Batch { return &batch{store: s} }

// NewBatchWithSize returns an empty batch.
func (s *Store) NewBatchWithSize(int) ethdb.Batch { return s.NewBatch() }

type kind int

const (
	put kind = iota
	remove
	removeRange
)

// write is a call of a batch: key and value, or start and end.
type write struct {
	kind kind
	a, b []byte
}

// batch keeps its calls, since they can be replayed and written again.
type batch struct {
	store  *Store
	writes []write
	size   int
}

func (b *batch) add(kind kind, first, second []byte) error {
	b.writes = append(b.writes, write{kind, bytes.Clone(first), bytes.Clone(second)})
	b.size += len(first) + len(second)
	return nil
}

func (b *batch) Put(key, value []byte) error         { return b.add(put, key, value) }
func (b *batch) Delete(key []byte) error             { return b.add(remove, key, nil) }
func (b *batch) DeleteRange(start, end []byte) error { return b.add(removeRange, start, end) }
func (b *batch) ValueSize() int                      { return b.size }
func (b *batch) Reset()                              { b.writes, b.size = b.writes[:0], 0 }
func (b *batch) Close()                              { b.writes, b.size = nil, 0 }

// Write commits the calls as one.
func (b *batch) Write() error {
	return b.store.db.Batch(func(tx *esker.Tx) error {
		ks, err := tx.In(b.store.ks)
		if err != nil {
			return err
		}
		return b.replay(ks, ks.DeleteRange)
	})
}

// Replay makes the calls on another writer.
func (b *batch) Replay(w ethdb.KeyValueWriter) error {
	ranges, ok := w.(ethdb.KeyValueRangeDeleter)
	return b.replay(w, func(start, end []byte) error {
		if !ok {
			return fmt.Errorf("the writer %T cannot remove ranges", w)
		}
		return ranges.DeleteRange(start, end)
	})
}

func (b *batch) replay(w ethdb.KeyValueWriter, deleteRange func(start, end []byte) error) error {
	for _, write := range b.writes {
		var err error
		switch write.kind {
		case put:
			err = w.Put(write.a, write.b)
		case remove:
			err = w.Delete(write.a)
		case removeRange:
			err = deleteRange(write.a, write.b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
