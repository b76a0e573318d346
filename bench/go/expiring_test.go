package main

// Adapters with entries that expire: they are found while they live and never afterwards, also after an
// opening.

import (
	"testing"
	"time"

	"esker.invalid/bench/lab"
)

func TestEntriesExpire(t *testing.T) {
	for _, engine := range engines {
		if native, expires := engine.(lab.ExpiringEngine); expires {
			t.Run(engine.Name(), func(t *testing.T) { entriesExpire(t, native) })
		}
	}
}

func entriesExpire(t *testing.T, engine lab.ExpiringEngine) {
	const short = 2 * time.Second // the end may come a second early
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	options := lab.OpenOptions{CacheBytes: 64 << 20, Durability: lab.Async}
	store, err := engine.OpenExpiring(dir, options)
	must(err)
	check := func(live string) {
		t.Helper()
		got, scanned := "", ""
		for _, key := range []string{"a", "b", "c"} {
			_, err := store.Get([]byte(key), func(value []byte) { got += key + string(value) })
			must(err)
		}
		_, err := store.Scan(func(key, value []byte) { scanned += string(key) + string(value) })
		must(err)
		if got != live || scanned != live {
			t.Fatalf("%q, a scan %q, not %q", got, scanned, live)
		}
	}
	must(store.PutFor([]byte("a"), []byte("1"), 0))
	must(store.PutFor([]byte("b"), []byte("2"), time.Hour))
	must(store.PutFor([]byte("c"), []byte("3"), time.Hour))
	check("a1b2c3")
	must(store.PutFor([]byte("c"), []byte("4"), short))
	time.Sleep(short + 100*time.Millisecond)
	check("a1b2")
	must(store.Close())
	store, err = engine.OpenExpiring(dir, options)
	must(err)
	check("a1b2")
	must(store.PutFor([]byte("c"), []byte("5"), 0))
	check("a1b2c5")
	must(store.Close())
}
