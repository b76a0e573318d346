package lab

// Many keyspaces in one database: the Go side of crates/esker-bench-api/src/keyspaces.rs, which promises
// the same.
//
//	KeyspaceEngine.OpenKeyspaces(dir, count) --> Keyspaces --Write(txn)--> KeyspaceWriter   Put
//	an engine with one order: Engine.Open(dir) --> Store --prefixed--> Keyspaces
//
// - Keyspaces.Write is one atomic transaction over any of them, with the durability given at the opening.
// - Keyspaces are separate orders. The same key in two of them is two items, and a range ends with its
//   keyspace.
// - A removed keyspace is empty. The removal is on the device when RemoveKeyspaces returns, whatever the
//   durability.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"
)

// keyspacesRemoveBatch is the number of items that prefixed removes in one transaction.
const keyspacesRemoveBatch = 1000

// KeyspaceEngine is an engine with keyspaces of its own.
type KeyspaceEngine interface {
	// OpenKeyspaces creates a database with count keyspaces, or opens the existing one.
	OpenKeyspaces(dir string, options OpenOptions, count uint32) (Keyspaces, error)
}

// Keyspaces is an open database with many ordered maps, numbered from 0.
type Keyspaces interface {
	Write(work func(KeyspaceWriter) error) error
	// Get and Range read the newest state of one keyspace.
	Get(keyspace uint32, key []byte, visit func(value []byte)) (bool, error)
	Range(keyspace uint32, from []byte, limit uint64, visit func(key, value []byte)) (uint64, error)
	// RemoveKeyspaces removes a range of keyspaces with all their items.
	RemoveKeyspaces(from, to uint32) error
	Drain(deadline time.Time) error // as Store.Drain
	Close() error
}

// KeyspaceWriter is the open transaction of a Keyspaces.Write.
type KeyspaceWriter interface {
	Put(keyspace uint32, key, value []byte) error
}

// OpenKeyspaces opens the keyspaces of an engine. For an engine with one order, keys get prefixes.
func OpenKeyspaces(engine Engine, dir string, options OpenOptions, count uint32) (Keyspaces, error) {
	if native, isNative := engine.(KeyspaceEngine); isNative {
		return native.OpenKeyspaces(dir, options, count)
	}
	store, err := engine.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return &prefixed{store, options.Durability}, nil
}

// prefixed keeps keyspaces in a store with one order: each key begins with the number of its keyspace, 4
// bytes big-endian.
type prefixed struct {
	store      Store
	durability Durability
}

func appendPrefixed(full []byte, keyspace uint32, key []byte) []byte {
	return append(binary.BigEndian.AppendUint32(full, keyspace), key...)
}

func (p *prefixed) Write(work func(KeyspaceWriter) error) error {
	return p.store.Write(func(w Writer) error { return work(&prefixedWriter{writer: w}) })
}

func (p *prefixed) Get(keyspace uint32, key []byte, visit func(value []byte)) (bool, error) {
	return p.store.Get(appendPrefixed(nil, keyspace, key), visit)
}

func (p *prefixed) Range(keyspace uint32, from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	number, seen := appendPrefixed(nil, keyspace, nil), uint64(0)
	_, err := p.store.Range(appendPrefixed(nil, keyspace, from), limit, func(key, value []byte) {
		if key, isOurs := bytes.CutPrefix(key, number); isOurs {
			visit(key, value)
			seen++
		}
	})
	return seen, err
}

// keys returns up to keyspacesRemoveBatch keys, from one key on and before another.
func (p *prefixed) keys(from, end []byte) (keys [][]byte, err error) {
	err = withReader(p.store, func(reader Reader) error {
		_, err := reader.Keys(from, keyspacesRemoveBatch, func(key []byte) {
			if bytes.Compare(key, end) < 0 {
				keys = append(keys, bytes.Clone(key))
			}
		})
		return err
	})
	return keys, err
}

// RemoveKeyspaces removes the items one by one, and then syncs.
func (p *prefixed) RemoveKeyspaces(from, to uint32) error {
	next, end := appendPrefixed(nil, from, nil), appendPrefixed(nil, to, nil)
	for {
		keys, err := p.keys(next, end)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		err = p.store.Write(func(w Writer) error {
			for _, key := range keys {
				if err := w.Remove(key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		// The next search begins behind the removed keys.
		next = append(keys[len(keys)-1], 0)
	}
	if p.durability == Sync {
		return nil
	}
	// The mode Sync makes the removals durable.
	return errors.Join(p.store.SetDurability(Sync), p.store.SetDurability(p.durability))
}

func (p *prefixed) Drain(deadline time.Time) error { return p.store.Drain(deadline) }
func (p *prefixed) Close() error                   { return p.store.Close() }

type prefixedWriter struct {
	writer Writer
	key    []byte // the last key, whose memory the next one takes
}

func (w *prefixedWriter) Put(keyspace uint32, key, value []byte) error {
	w.key = appendPrefixed(w.key[:0], keyspace, key)
	return w.writer.Put(w.key, value)
}
