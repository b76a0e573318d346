// Package datastore is a datastore of IPFS (go-datastore) in a keyspace of Esker, with batches, transactions
// and lifetimes.
package datastore

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	ds "github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"

	"esker.dev/esker"
)

// Datastore is a datastore in a keyspace. Close closes its database.
type Datastore struct {
	db *esker.DB
	store
}

var (
	_ ds.Batching     = (*Datastore)(nil)
	_ ds.TxnDatastore = (*Datastore)(nil)
	_ ds.TTLDatastore = (*Datastore)(nil)
)

// New returns the datastore in a keyspace of a database, which belongs to the datastore from then on.
func New(db *esker.DB, keyspace string) (*Datastore, error) {
	ks, err := db.Keyspace(keyspace)
	if err != nil {
		return nil, err
	}
	return &Datastore{db, store{ks}}, nil
}

// Close closes the database.
func (d *Datastore) Close() error { return d.db.Close() }

// Sync makes all writes durable, whatever the prefix is.
func (d *Datastore) Sync(context.Context, ds.Key) error { return d.db.Sync() }

// DiskUsage returns about how many bytes the datastore has on disk.
func (d *Datastore) DiskUsage(context.Context) (uint64, error) { return d.ks.ApproximateSize(nil, nil) }

// SetTTL sets the lifetime of a value, in a transaction: a value that is set meanwhile is not overwritten.
func (d *Datastore) SetTTL(ctx context.Context, key ds.Key, ttl time.Duration) error {
	return d.db.Update(func(tx *esker.Tx) error {
		ks, err := tx.In(d.ks)
		if err != nil {
			return err
		}
		return store{ks}.SetTTL(ctx, key, ttl)
	})
}

// store has the calls that a datastore and a transaction share.
type store struct{ ks *esker.Keyspace }

// missing replaces the error for a missing key.
func missing(err error) error {
	if errors.Is(err, esker.ErrNotFound) {
		return ds.ErrNotFound
	}
	return err
}

func (s store) Get(_ context.Context, key ds.Key) ([]byte, error) {
	value, err := s.ks.Get(key.Bytes())
	return value, missing(err)
}

func (s store) Has(_ context.Context, key ds.Key) (bool, error) { return s.ks.Contains(key.Bytes()) }

func (s store) GetSize(ctx context.Context, key ds.Key) (int, error) {
	value, err := s.Get(ctx, key)
	if err != nil {
		return -1, err
	}
	return len(value), nil
}

func (s store) Put(_ context.Context, key ds.Key, value []byte) error {
	return s.ks.Put(key.Bytes(), value)
}

func (s store) Delete(_ context.Context, key ds.Key) error { return s.ks.Delete(key.Bytes()) }

func (s store) PutWithTTL(_ context.Context, key ds.Key, value []byte, ttl time.Duration) error {
	return s.ks.PutTTL(key.Bytes(), value, ttl)
}

func (s store) SetTTL(_ context.Context, key ds.Key, ttl time.Duration) error {
	value, err := s.ks.Get(key.Bytes())
	if err != nil {
		return missing(err)
	}
	return s.ks.PutTTL(key.Bytes(), value, ttl)
}

func (s store) GetExpiration(_ context.Context, key ds.Key) (time.Time, error) {
	ttl, err := s.ks.TTL(key.Bytes())
	if err != nil || ttl == esker.Forever {
		return time.Time{}, missing(err)
	}
	return time.Now().Add(ttl), nil
}

// Query reads in the order of keys, and leaves filters, other orders, offset and limit to go-datastore.
func (s store) Query(ctx context.Context, q query.Query) (query.Results, error) {
	var options []esker.RangeOption
	if q.KeysOnly && !q.ReturnsSizes {
		options = append(options, esker.KeysOnly)
	}
	rest := q
	rest.Prefix = ""
	if len(q.Orders) > 0 {
		switch q.Orders[0].(type) {
		case query.OrderByKeyDescending, *query.OrderByKeyDescending:
			options = append(options, esker.Reverse)
			rest.Orders = nil
		case query.OrderByKey, *query.OrderByKey:
			rest.Orders = nil
		}
	}
	next, stop := iter.Pull2(s.ks.Prefix(childrenOf(q.Prefix), options...))
	isOver := false
	results := query.ResultsFromIterator(q, query.Iterator{
		Next: func() (query.Result, bool) {
			for key, value, ok := next(); ok; key, value, ok = next() {
				result := s.result(q, key, value)
				// An entry that has expired since the range gave it is none.
				if !errors.Is(result.Error, esker.ErrNotFound) {
					return result, true
				}
			}
			if err := s.ks.Err(); err != nil && !isOver {
				isOver = true
				return query.Result{Error: err}, true
			}
			return query.Result{}, false
		},
		Close: func() error {
			stop()
			return nil
		},
	})
	return query.NaiveQueryApply(rest, results), nil
}

// childrenOf returns what the keys below a prefix begin with.
func childrenOf(prefix string) []byte {
	if prefix == "" || prefix == "/" {
		return nil
	}
	return []byte(strings.TrimSuffix(ds.NewKey(prefix).String(), "/") + "/")
}

func (s store) result(q query.Query, key, value []byte) query.Result {
	entry := query.Entry{Key: string(key), Size: len(value)}
	switch {
	case !q.KeysOnly:
		entry.Value = value
	case !q.ReturnsSizes:
		entry.Size = -1
	}
	if q.ReturnExpirations {
		ttl, err := s.ks.TTL(key)
		if err != nil {
			return query.Result{Error: err}
		}
		if ttl != esker.Forever {
			entry.Expiration = time.Now().Add(ttl)
		}
	}
	return query.Result{Entry: entry}
}

// Batch returns an empty batch, which writes without reading.
func (d *Datastore) Batch(context.Context) (ds.Batch, error) {
	tx, err := d.begin(esker.WriteOnly)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

// NewTransaction begins a transaction. Its commit fails with esker.ErrConflict if another one interferes.
func (d *Datastore) NewTransaction(_ context.Context, readOnly bool) (ds.Txn, error) {
	kind := esker.TxDefault
	if readOnly {
		kind = esker.ReadOnly
	}
	tx, err := d.begin(kind)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

func (d *Datastore) begin(kind esker.TxKind) (*txn, error) {
	tx, err := d.db.Begin(kind)
	if err != nil {
		return nil, err
	}
	ks, err := tx.In(d.ks)
	return &txn{tx, store{ks}}, err
}

type txn struct {
	tx *esker.Tx
	store
}

func (t *txn) Commit(context.Context) error { return t.tx.Commit() }

func (t *txn) Discard(context.Context) { _ = t.tx.Rollback() }
