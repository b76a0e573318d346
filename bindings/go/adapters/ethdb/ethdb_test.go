package ethdb_test

import (
	"testing"

	geth "github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/ethdb/dbtest"

	"esker.dev/esker"
	"esker.dev/esker/adapters/ethdb"
)

// TestSuite runs go-ethereum's own suite.
func TestSuite(t *testing.T) {
	dbtest.TestDatabaseSuite(t, func() geth.KeyValueStore {
		db, err := esker.OpenInMemory(&esker.Options{Memory: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		store, err := ethdb.New(db, "eth")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	})
}
