package datastore_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	ds "github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
	dstest "github.com/ipfs/go-datastore/test"

	"esker.dev/esker"
	"esker.dev/esker/adapters/datastore"
)

func open(t *testing.T) *datastore.Datastore {
	options := &esker.Options{Durability: esker.NoWait, Memory: 64 << 20}
	db, err := esker.Open(filepath.Join(t.TempDir(), "db"), options)
	if err != nil {
		t.Fatal(err)
	}
	store, err := datastore.New(db, "ipfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Check(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestSuite runs go-datastore's own suite.
func TestSuite(t *testing.T) { dstest.SubtestAll(t, open(t)) }

func TestTransactionsAndLifetimes(t *testing.T) {
	store, ctx := open(t), t.Context()
	one, err := store.NewTransaction(ctx, false)
	other, err2 := store.NewTransaction(ctx, false)
	a, b := ds.NewKey("/a"), ds.NewKey("/b")
	if err := errors.Join(err, err2, one.Put(ctx, a, []byte("1")), other.Put(ctx, b, []byte("2"))); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Get(ctx, a); !errors.Is(err, ds.ErrNotFound) {
		t.Fatal(err)
	}
	if err := one.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(ctx); !errors.Is(err, esker.ErrConflict) {
		t.Fatal(err)
	}
	other.Discard(ctx)
	if err := store.SetTTL(ctx, a, time.Hour); err != nil {
		t.Fatal(err)
	}
	when, err := store.GetExpiration(ctx, a)
	if left := time.Until(when); err != nil || left > time.Hour || left < 59*time.Minute {
		t.Fatal(left, err)
	}
	if has, err := store.Has(ctx, b); has || err != nil {
		t.Fatal(has, err)
	}
	if _, err := store.GetExpiration(ctx, b); !errors.Is(err, ds.ErrNotFound) {
		t.Fatal(err)
	}
}

// An entry that expires between the range and the question for its expiry is left out: it would seem to stay.
func TestWhatExpiresDuringAQueryIsLeftOut(t *testing.T) {
	store, ctx := open(t), t.Context()
	for _, name := range []string{"/brief", "/long"} {
		if err := store.PutWithTTL(ctx, ds.NewKey(name), []byte("1"), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	results, err := store.Query(ctx, query.Query{ReturnExpirations: true})
	if err != nil {
		t.Fatal(err)
	}
	defer results.Close()
	// The range has begun, and shows the state at its begin.
	first, ok := results.NextSync()
	if err := store.SetTTL(ctx, ds.NewKey("/long"), time.Millisecond); err != nil || !ok || first.Key != "/brief" {
		t.Fatal(first, err)
	}
	time.Sleep(5 * time.Millisecond)
	if second, ok := results.NextSync(); ok {
		t.Fatal(second)
	}
}
