package main

// The engines, each with the calls that its users make. bbolt, Badger and Pebble lend what they read. Esker
// returns copies.

import (
	"errors"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"esker.dev/esker"
)

// cacheBytes is the cache of each engine, and all of Esker's memory. bbolt uses the page cache.
const cacheBytes = 256 << 20

// durability is what a commit waits for.
type durability int

const (
	// The end of the process can take the last commits.
	noWait durability = iota
	// The operating system has the commit.
	buffered
	onDisk
)

type store interface {
	durabilities() []durability
	put(key, value []byte, durability durability) error
	// batch commits some entries together, buffered.
	batch(keys, values [][]byte) error
	// get returns the length of a value, or -1.
	get(key []byte) (int, error)
	// scan visits at most some entries and returns their number.
	scan(from []byte, limit int) (int, error)
	// settle compacts, so that nothing is left to do in the background.
	settle() error
	sync() error
	close() error
}

type engine struct {
	name string
	open func(directory string) (store, error)
}

var engines = []engine{
	{"Esker", openEsker}, {"bbolt", openBbolt}, {"Badger", openBadger}, {"Pebble", openPebble},
}

// visited keeps the compiler from dropping reads.
var visited int

func visit(key, value []byte) { visited += len(key) + len(value) + int(value[0]) }

type eskerStore struct {
	db   *esker.DB
	maps [3]*esker.Keyspace
}

func openEsker(directory string) (store, error) {
	db, err := esker.Open(directory, &esker.Options{Memory: cacheBytes, Durability: esker.Buffered})
	if err != nil {
		return nil, err
	}
	s := &eskerStore{db: db}
	for at, durability := range []esker.Durability{esker.NoWait, esker.Buffered, esker.Sync} {
		keyspace, err := db.Keyspace("map")
		if err != nil {
			return nil, err
		}
		if s.maps[at], err = keyspace.With(durability); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *eskerStore) durabilities() []durability { return []durability{noWait, buffered, onDisk} }

func (s *eskerStore) put(key, value []byte, durability durability) error {
	return s.maps[durability].Put(key, value)
}

func (s *eskerStore) batch(keys, values [][]byte) error {
	return s.db.Batch(func(tx *esker.Tx) error {
		keyspace, err := tx.In(s.maps[buffered])
		if err != nil {
			return err
		}
		for n, key := range keys {
			if err := keyspace.Put(key, values[n]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *eskerStore) get(key []byte) (int, error) {
	value, err := s.maps[buffered].Get(key)
	if err != nil {
		if errors.Is(err, esker.ErrNotFound) {
			return -1, nil
		}
		return 0, err
	}
	visit(key, value)
	return len(value), nil
}

func (s *eskerStore) scan(from []byte, limit int) (int, error) {
	entries := 0
	for key, value := range s.maps[buffered].Range(from, nil, esker.Limit(limit)) {
		visit(key, value)
		entries++
	}
	return entries, s.maps[buffered].Err()
}

func (s *eskerStore) settle() error { return s.db.Compact() }
func (s *eskerStore) sync() error   { return s.db.Sync() }
func (s *eskerStore) close() error  { return s.db.Close() }

var bucketName = []byte("map")

// boltStore has the options of etcd.
type boltStore struct{ db *bolt.DB }

func openBbolt(directory string) (store, error) {
	db, err := bolt.Open(filepath.Join(directory, "data"), 0o644, &bolt.Options{
		FreelistType: bolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: 16 << 30, NoSync: true,
	})
	if err != nil {
		return nil, err
	}
	return &boltStore{db}, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(bucketName)
		return err
	})
}

func (s *boltStore) durabilities() []durability { return []durability{buffered, onDisk} }

func (s *boltStore) put(key, value []byte, durability durability) error {
	s.db.NoSync = durability != onDisk
	return s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketName).Put(key, value) })
}

func (s *boltStore) batch(keys, values [][]byte) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(bucketName)
		for n, key := range keys {
			if err := bucket.Put(key, values[n]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *boltStore) get(key []byte) (int, error) {
	length := -1
	err := s.db.View(func(tx *bolt.Tx) error {
		if value := tx.Bucket(bucketName).Get(key); value != nil {
			visit(key, value)
			length = len(value)
		}
		return nil
	})
	return length, err
}

func (s *boltStore) scan(from []byte, limit int) (int, error) {
	entries := 0
	err := s.db.View(func(tx *bolt.Tx) error {
		cursor := tx.Bucket(bucketName).Cursor()
		for key, value := cursor.Seek(from); key != nil && entries < limit; key, value = cursor.Next() {
			visit(key, value)
			entries++
		}
		return nil
	})
	return entries, err
}

func (s *boltStore) settle() error { return nil }
func (s *boltStore) sync() error   { return s.db.Sync() }
func (s *boltStore) close() error  { return s.db.Close() }
