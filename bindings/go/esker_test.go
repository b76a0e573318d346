package esker_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"esker.dev/esker"
)

// open opens a database with a feed, and checks and closes it after the test.
func open(t testing.TB) *esker.DB {
	t.Helper()
	options := &esker.Options{Durability: esker.NoWait, FeedBytes: 64 << 20, Memory: 64 << 20}
	db, err := esker.Open(filepath.Join(t.TempDir(), "db"), options)
	must(t, err)
	t.Cleanup(func() {
		if err := db.Check(); err != nil && !errors.Is(err, esker.ErrClosed) {
			t.Error(err)
		}
		must(t, db.Close())
	})
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns what a call returned, or ends the test.
func value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func b(text string) []byte { return []byte(text) }

// shown writes entries as "k=v k=v".
func shown(entries func(func([]byte, []byte) bool)) string {
	var all []string
	entries(func(key, value []byte) bool {
		all = append(all, string(key)+"="+string(value))
		return true
	})
	return strings.Join(all, " ")
}

func equal[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestReadsAndWrites(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	for _, key := range []string{"a", "b", "c", "d", "p1", "p2"} {
		must(t, ks.Put(b(key), b("v"+key)))
	}
	large := bytes.Repeat(b("0123456789"), 20000)
	must(t, ks.Put(b("large"), large))
	if !bytes.Equal(value(ks.Get(b("large")))(t), large) {
		t.Fatal("a large value came back changed")
	}
	equal(t, string(value(ks.Remove(b("large")))(t)), string(large))
	_, err := ks.Remove(b("large"))
	wants(t, err, esker.ErrNotFound)
	must(t, ks.Put(b("empty"), nil))
	if empty := value(ks.Get(b("empty")))(t); empty == nil || len(empty) != 0 {
		t.Fatalf("an empty value is %v", empty)
	}
	must(t, ks.Delete(b("empty")))
	many := value(ks.GetMany(b("d"), b("x"), b("a")))(t)
	if string(many[0]) != "vd" || many[1] != nil || string(many[2]) != "va" {
		t.Fatalf("%q", many)
	}
	equal(t, shown(ks.Range(b("b"), b("d"))), "b=vb c=vc")
	equal(t, shown(ks.Prefix(b("p"), esker.Reverse)), "p2=vp2 p1=vp1")
	equal(t, shown(ks.Range(b("p"), nil, esker.KeysOnly, esker.Reverse)), "p2= p1=")
	equal(t, shown(ks.Range(nil, []byte{})), "")
	equal(t, shown(ks.Range(b("b"), nil, esker.Limit(2))), "b=vb c=vc")
	equal(t, shown(ks.Prefix(b("p"), esker.Limit(1), esker.KeysOnly)), "p1=")
	equal(t, shown(ks.All(esker.Limit(3), esker.Reverse, esker.Limit(1))), "p2=vp2")
	equal(t, shown(ks.All(esker.Limit(0))), "")
	equal(t, shown(ks.All(esker.Limit(-1))), "")
	equal(t, shown(ks.Range(b("d"), b("p"), esker.Limit(math.MaxInt))), "d=vd")
	equal(t, value(ks.Len())(t), 6)
	must(t, ks.DeleteRange(b("b"), b("d")))
	must(t, ks.DeletePrefix(b("p")))
	equal(t, shown(ks.All()), "a=va d=vd")
	must(t, ks.Err())

	equal(t, value(ks.Add(b("n"), 5))(t), 5)
	equal(t, value(ks.Add(b("n"), -7))(t), -2)
	equal(t, value(ks.CompareAndSwap(b("s"), nil, b("1")))(t), true)
	equal(t, value(ks.CompareAndSwap(b("s"), b("2"), b("3")))(t), false)
	equal(t, value(ks.CompareAndSwap(b("s"), b("1"), []byte{}))(t), true)
	equal(t, value(ks.CompareAndSwap(b("s"), nil, b("1")))(t), false)
	equal(t, value(ks.CompareAndSwap(b("s"), []byte{}, nil))(t), true)
	equal(t, value(ks.Contains(b("s")))(t), false)

	log := value(db.Keyspace("log"))(t)
	wants(t, log.Merge(b("k"), b("x")), esker.ErrMerge)
	must(t, log.SetMergeOperator("append"))
	must(t, log.Merge(b("k"), b("x")))
	must(t, log.Merge(b("k"), b("y")))
	equal(t, string(value(log.Get(b("k")))(t)), "xy")

	must(t, ks.PutTTL(b("brief"), b("x"), 200*time.Microsecond))
	must(t, ks.PutTTL(b("long"), b("x"), time.Hour))
	if ttl := value(ks.TTL(b("long")))(t); ttl > time.Hour || ttl < time.Hour-time.Minute {
		t.Fatal(ttl)
	}
	equal(t, value(ks.TTL(b("a")))(t), esker.Forever)
	must(t, ks.Persist(b("long")))
	equal(t, value(ks.TTL(b("long")))(t), esker.Forever)
	must(t, ks.Expire(b("long"), time.Minute))
	if ttl := value(ks.TTL(b("long")))(t); ttl > time.Minute {
		t.Fatal(ttl)
	}
	wants(t, ks.Expire(b("none"), time.Minute), esker.ErrNotFound)
	wants(t, ks.Persist(b("none")), esker.ErrNotFound)
	wants(t, ks.Expire(b("long"), -1), esker.ErrInvalid)
	time.Sleep(20 * time.Millisecond)
	_, err = ks.TTL(b("brief"))
	wants(t, err, esker.ErrNotFound)
}

func TestLongRanges(t *testing.T) {
	db := open(t)
	must(t, db.Batch(func(tx *esker.Tx) error {
		ks, err := tx.Keyspace("a")
		for i := 0; i < 20000 && err == nil; i++ {
			size := 20
			if i%1000 == 0 {
				size = 100000
			}
			err = ks.Put(fmt.Appendf(nil, "%06d", i), bytes.Repeat([]byte{byte(i)}, size))
		}
		return err
	}))
	ks := value(db.Keyspace("a"))(t)
	for _, options := range [][]esker.RangeOption{{}, {esker.Reverse}, {esker.KeysOnly}} {
		var kept [][]byte
		count := 0
		for key, val := range ks.All(options...) {
			at := count
			if len(options) == 1 && options[0] == esker.Reverse {
				at = 19999 - count
			}
			equal(t, string(key), fmt.Sprintf("%06d", at))
			if val != nil && val[len(val)-1] != byte(at) {
				t.Fatal(at)
			}
			kept = append(kept, key)
			// Appending to a key must not reach the next entry.
			_ = append(key, "overwritten"...)
			count++
		}
		equal(t, count, 20000)
		equal(t, string(kept[0][:3]), string(kept[1][:3]))
	}
	for range ks.All() {
		break
	}
	cursor := ks.Cursor()
	key, val := cursor.Seek(b("0009995"))
	equal(t, string(key), "001000")
	equal(t, len(val), 100000)
	key, _ = cursor.Prev()
	equal(t, string(key), "000999")
	key, _ = cursor.SeekBefore(b("000000"))
	if key != nil {
		t.Fatal(key)
	}
	key, _ = cursor.Last()
	equal(t, string(key), "019999")
	if key, _ = cursor.Next(); key != nil {
		t.Fatal(key)
	}
	must(t, cursor.Err())
	cursor.Close()
	cursor.Close()
	if key, _ = cursor.First(); key != nil {
		t.Fatal(key)
	}
	wants(t, cursor.Err(), esker.ErrTxDone)
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := esker.Open(dir+"/missing", &esker.Options{MustExist: true})
	wants(t, err, esker.ErrNoDatabase)
	var full *esker.Error
	if !errors.As(err, &full) || full.File != dir+"/missing" || full.Offset != -1 || full.Message == "" {
		t.Fatalf("%#v", full)
	}
	db := value(esker.Open(dir+"/db", nil))(t)
	_, err = esker.Open(dir+"/db", nil)
	wants(t, err, esker.ErrLocked)
	ks := value(db.Keyspace("a"))(t)
	wants(t, ks.Put(make([]byte, esker.KeyBytesMax+1), nil), esker.ErrTooLong)
	must(t, ks.Put(make([]byte, esker.KeyBytesMax), nil))
	_, err = db.Keyspace("a\x00b")
	wants(t, err, esker.ErrInvalid)
	_, err = db.FindKeyspace("b")
	wants(t, err, esker.ErrKeyspaceNotFound)
	_, err = esker.Open("a\x00b", nil)
	wants(t, err, esker.ErrInvalid)
	_, err = esker.Open("/proc/nowhere", nil)
	wants(t, err, esker.ErrIO)
	wants(t, err, syscall.ENOENT)
	wants(t, ks.PutTTL(nil, nil, -1), esker.ErrInvalid)
	wants(t, ks.Lock(b("a")), esker.ErrInvalid)
	err = db.View(func(tx *esker.Tx) error { return value(tx.In(ks))(t).Put(b("a"), nil) })
	wants(t, err, esker.ErrReadOnly)
	must(t, db.Close())
	_, err = esker.Open(dir+"/db", &esker.Options{MustNotExist: true})
	wants(t, err, esker.ErrExists)
	db = value(esker.Open(dir+"/db", &esker.Options{ReadOnly: true}))(t)
	wants(t, value(db.Keyspace("a"))(t).Put(b("a"), nil), esker.ErrReadOnly)
	must(t, db.Close())
}

// An error in the middle of a range ends the loop after the entries before it, and is not lost.
func TestErrorsInRanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db := value(esker.Open(dir, &esker.Options{NoCompression: true}))(t)
	ks := value(db.Keyspace("a"))(t)
	const count = 20000
	must(t, db.Batch(func(tx *esker.Tx) error {
		in := value(tx.In(ks))(t)
		for n := range count {
			must(t, in.Put(fmt.Appendf(nil, "%06d", n), bytes.Repeat([]byte{byte(n)}, 50)))
		}
		return nil
	}))
	must(t, db.Compact())
	must(t, db.Close())
	table := value(filepath.Glob(dir + "/*.sst"))(t)[0]
	content := value(os.ReadFile(table))(t)
	content[len(content)/2] ^= 1
	must(t, os.WriteFile(table, content, 0o600))

	db = value(esker.Open(dir, nil))(t)
	ks = value(db.Keyspace("a"))(t)
	for _, options := range [][]esker.RangeOption{nil, {esker.Reverse}, {esker.KeysOnly}} {
		seen := 0
		for range ks.All(options...) {
			seen++
		}
		err := ks.Err()
		wants(t, err, esker.ErrCorrupt)
		var full *esker.Error
		if !errors.As(err, &full) || full.File != table || full.Offset <= 0 {
			t.Fatalf("%#v", full)
		}
		if seen < count/4 || seen >= count {
			t.Fatalf("%d entries before the damage", seen)
		}
		err = db.View(func(tx *esker.Tx) error {
			for range value(tx.In(ks))(t).All(options...) {
			}
			return nil
		})
		wants(t, err, esker.ErrCorrupt)
	}
	must(t, db.Close())
}

func TestCatalog(t *testing.T) {
	db := open(t)
	old := value(db.Keyspace("old"))(t)
	must(t, old.Put(b("a"), b("1")))
	must(t, db.RenameKeyspace("old", "new"))
	equal(t, value(old.Name())(t), "new")
	again := value(db.Keyspace("old"))(t)
	equal(t, value(again.Len())(t), 0)
	wants(t, db.RenameKeyspace("new", "old"), esker.ErrKeyspaceExists)
	equal(t, fmt.Sprint(value(db.Keyspaces())(t)), "[default new old]")
	must(t, db.DropKeyspace("new"))
	wants(t, old.Put(b("a"), b("1")), esker.ErrKeyspaceNotFound)
	must(t, value(db.Keyspace("new"))(t).Put(b("a"), b("2")))
	wants(t, db.DropKeyspace("missing"), esker.ErrKeyspaceNotFound)
	synced := value(again.With(esker.Sync))(t)
	must(t, synced.Put(b("a"), b("3")))
	equal(t, value(again.ID())(t), value(synced.ID())(t))
	must(t, db.Sync())
	must(t, db.Compact())
	if stats := value(db.Stats())(t); len(stats) < 20 {
		t.Fatal(stats)
	}
}
