package main

// The correctness test that every adapter passes: conformance.rs of crates/esker-bench-api in Go.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"esker.invalid/bench/lab"
)

type item struct{ key, value string }

func numbered(i int) item { return item{fmt.Sprintf("key %05d", i), fmt.Sprintf("value %d", i)} }

type fixture struct {
	*testing.T
	store      lab.Store
	live       []item
	valueBytes int // the least length of a value
}

func (f *fixture) numbered(i int) item {
	item := numbered(i)
	item.value += strings.Repeat("x", max(0, f.valueBytes-len(item.value)))
	return item
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) put(items ...item) {
	f.Helper()
	f.must(f.store.Write(func(w lab.Writer) error {
		for _, item := range items {
			if err := w.Put([]byte(item.key), []byte(item.value)); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (f *fixture) walk(reader lab.Reader, from string, limit uint64) []item {
	f.Helper()
	items := []item{}
	seen, err := reader.Range([]byte(from), limit, func(key, value []byte) {
		items = append(items, item{string(key), string(value)})
	})
	f.must(err)
	if seen != uint64(len(items)) {
		f.Fatalf("%d items shown, %d returned", len(items), seen)
	}
	return items
}

func (f *fixture) get(reader lab.Reader, key string) (value string, found bool) {
	f.Helper()
	found, err := reader.Get([]byte(key), func(bytes []byte) { value = string(bytes) })
	f.must(err)
	return value, found
}

func (f *fixture) check() {
	f.Helper()
	reader, err := f.store.Reader()
	f.must(err)
	defer reader.Close()
	length, err := reader.Len()
	f.must(err)
	if length != uint64(len(f.live)) {
		f.Fatalf("len is %d, not %d", length, len(f.live))
	}
	if got := f.walk(reader, "", ^uint64(0)); !reflect.DeepEqual(got, f.live) {
		f.Fatal("a full walk shows other items")
	}
	for _, item := range f.live {
		if value, found := f.get(reader, item.key); !found || value != item.value {
			f.Fatalf("%s is %q, %t", item.key, value, found)
		}
	}
	middle := len(f.live) / 2
	if got := f.walk(reader, f.live[middle].key, 10); !reflect.DeepEqual(got, f.live[middle:middle+10]) {
		f.Fatal("a walk from the middle shows other items")
	}
	if got := f.walk(reader, "zzz", 10); len(got) != 0 {
		f.Fatal("a walk from behind the end shows items")
	}
	if _, found := f.get(reader, "no such key"); found {
		f.Fatal("a key that is not there is found")
	}
	var keys []string
	_, err = reader.Keys([]byte(f.live[middle].key), 10, func(key []byte) { keys = append(keys, string(key)) })
	f.must(err)
	if len(keys) != 10 || keys[9] != f.live[middle+9].key {
		f.Fatal("a walk over keys shows others")
	}
	value := ""
	_, err = f.store.Get([]byte(f.live[middle].key), func(bytes []byte) { value = string(bytes) })
	f.must(err)
	if value != f.live[middle].value {
		f.Fatal("Store.Get gives another value")
	}
	seen, err := f.store.Range([]byte(f.live[middle].key), 3, func(_, _ []byte) {})
	f.must(err)
	if seen != 3 {
		f.Fatal("Store.Range gives another count")
	}
}

// writers that write at once.
const writers = 16

// atOnce does the work of several writers at once.
func (f *fixture) atOnce(work func(writer int) error) {
	f.Helper()
	start := make(chan struct{})
	failed := make([]error, writers)
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			<-start
			failed[writer] = work(writer)
		})
	}
	close(start)
	all.Wait()
	f.must(errors.Join(failed...))
}

// Writers at once, each with items of its own, in transactions of several; then all is removed again.
func (f *fixture) checkWriters() {
	f.Helper()
	const transactions, writes = 10, 4
	number := func(writer, transaction, write int) item {
		return f.numbered(10_000 + (writer*transactions+transaction)*writes + write)
	}
	f.atOnce(func(writer int) error {
		for transaction := range transactions {
			err := f.store.Write(func(w lab.Writer) error {
				for write := range writes {
					item := number(writer, transaction, write)
					if err := w.Put([]byte(item.key), []byte(item.value)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	reader, err := f.store.Reader()
	f.must(err)
	length, err := reader.Len()
	f.must(err)
	if length != uint64(len(f.live)+writers*transactions*writes) {
		f.Fatalf("len is %d after writers at once", length)
	}
	var written []string
	for writer := range writers {
		for transaction := range transactions {
			for write := range writes {
				item := number(writer, transaction, write)
				if value, found := f.get(reader, item.key); !found || value != item.value {
					f.Fatalf("%s, written by one of several, is %q, %t", item.key, value, found)
				}
				written = append(written, item.key)
			}
		}
	}
	f.must(reader.Close())
	f.remove(written...)
}

// Writers write the same two keys at once, each in its own order: both hold what one transaction wrote.
func (f *fixture) checkContention() {
	f.Helper()
	const transactions = 50
	keys := []string{numbered(20_000).key, numbered(20_001).key}
	f.atOnce(func(writer int) error {
		first, last := keys[writer%2], keys[1-writer%2]
		for transaction := range transactions {
			value := fmt.Append(nil, writer*transactions+transaction)
			err := f.store.Write(func(w lab.Writer) error {
				if err := w.Put([]byte(first), value); err != nil {
					return err
				}
				runtime.Gosched()
				return w.Put([]byte(last), value)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	reader, err := f.store.Reader()
	f.must(err)
	one, found := f.get(reader, keys[0])
	other, foundToo := f.get(reader, keys[1])
	f.must(reader.Close())
	if !found || !foundToo || one != other {
		f.Fatalf("two keys that are written together: %q, %t and %q, %t", one, found, other, foundToo)
	}
	f.remove(keys...)
}

func (f *fixture) remove(keys ...string) {
	f.Helper()
	f.must(f.store.Write(func(w lab.Writer) error {
		for _, key := range keys {
			if err := w.Remove([]byte(key)); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestAdapters(t *testing.T) {
	for _, engine := range engines {
		// Some engines keep values apart from 1 KiB on.
		for _, valueBytes := range []int{16, 4 << 10} {
			t.Run(fmt.Sprint(engine.Name(), " ", valueBytes), func(t *testing.T) { adapterIsCorrect(t, engine, valueBytes) })
		}
	}
}

func adapterIsCorrect(t *testing.T, engine lab.Engine, valueBytes int) {
	dir := t.TempDir()
	options := lab.OpenOptions{CacheBytes: 64 << 20, ValueBytes: valueBytes}
	store, err := engine.Open(dir, options)
	f := &fixture{T: t, store: store, valueBytes: valueBytes}
	f.must(err)
	for i := range 1000 {
		f.live = append(f.live, f.numbered(i))
	}
	shuffled := slices.Clone(f.live[:900])
	slices.Reverse(shuffled)
	f.put(shuffled...)
	f.must(store.SetDurability(lab.NoSync))
	for i := 900; i < 1000; i++ {
		f.put(f.live[i])
	}
	f.must(store.SetDurability(lab.Sync))
	f.check()

	stop := errors.New("stop")
	err = store.Write(func(w lab.Writer) error {
		f.must(w.Put([]byte("never"), []byte("seen")))
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatal("the error of the work is lost:", err)
	}
	f.check()

	before, err := store.Reader()
	f.must(err)
	removed := f.live[500:]
	f.live = f.live[:500]
	var keys []string
	for _, item := range removed {
		keys = append(keys, item.key)
	}
	f.remove(keys...)
	if value, found := f.get(before, removed[0].key); !found || value != removed[0].value {
		t.Fatal("an open reader is a snapshot")
	}
	f.must(before.Close())
	f.check()

	f.live[7].value = "replaced"
	f.put(f.live[7])
	f.check()

	f.must(store.Drain(time.Now().Add(time.Minute)))
	f.must(store.Compact())
	f.must(store.Reopen())
	f.check()
	f.live[7] = f.numbered(7)
	f.put(f.live[7])
	f.must(store.Close())
	options.ConcurrentWrites = writers
	f.store, err = engine.Open(dir, options)
	f.must(err)
	f.check()
	f.checkWriters()
	f.checkContention()
	f.check()
	f.must(f.store.Close())
}

// TestKeyspaces: a write to one keyspace shows in that one only, and ends with it.
func TestKeyspaces(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.Name(), func(t *testing.T) { keyspacesAreCorrect(t, engine) })
	}
}

const (
	keyspaces       = 6
	keysOfEach      = 40
	lastKeyspaceKey = "\xff\xff\xff\xff\xff\xff\xff\xff" // behind all others
)

// keyspacesFixture knows what each keyspace has to hold.
type keyspacesFixture struct {
	*testing.T
	open lab.Keyspaces
	live [keyspaces]map[string]string
}

func keyOfKeyspace(i int) string {
	if i == keysOfEach-1 {
		return lastKeyspaceKey
	}
	return numbered(i).key
}

func (f *keyspacesFixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// put writes the first keys of each of some keyspaces in one transaction; their number is keys.
func (f *keyspacesFixture) put(what string, keys int, into ...int) {
	f.Helper()
	f.must(f.open.Write(func(w lab.KeyspaceWriter) error {
		for i := range keys {
			for _, keyspace := range into {
				key, value := keyOfKeyspace(i), fmt.Sprintf("%s %d of %d", what, i, keyspace)
				if err := w.Put(uint32(keyspace), []byte(key), []byte(value)); err != nil {
					return err
				}
				f.live[keyspace][key] = value
			}
		}
		return nil
	}))
}

func (f *keyspacesFixture) check() {
	f.Helper()
	for keyspace, live := range f.live {
		for i := range keysOfEach {
			value := ""
			found, err := f.open.Get(uint32(keyspace), []byte(keyOfKeyspace(i)), func(bytes []byte) { value = string(bytes) })
			f.must(err)
			if want, isThere := live[keyOfKeyspace(i)]; found != isThere || value != want {
				f.Fatalf("key %d of keyspace %d is %q, %t", i, keyspace, value, found)
			}
		}
		var keys []string
		visit := func(key, value []byte) {
			if keys = append(keys, string(key)); live[string(key)] != string(value) {
				f.Errorf("%q of keyspace %d is %q in a walk", key, keyspace, value)
			}
		}
		seen, err := f.open.Range(uint32(keyspace), nil, ^uint64(0), visit)
		f.must(err)
		if int(seen) != len(live) || len(keys) != len(live) || !slices.IsSorted(keys) {
			f.Fatalf("a walk over keyspace %d shows %d items", keyspace, seen)
		}
		seen, err = f.open.Range(uint32(keyspace), []byte(lastKeyspaceKey), 10, visit)
		f.must(err)
		if int(seen) != min(len(live), 1) {
			f.Fatalf("%d items at the end of keyspace %d", seen, keyspace)
		}
	}
}

func keyspacesAreCorrect(t *testing.T, engine lab.Engine) {
	dir := t.TempDir()
	f := &keyspacesFixture{T: t}
	for keyspace := range f.live {
		f.live[keyspace] = map[string]string{}
	}
	open := func(durability lab.Durability) {
		options := lab.OpenOptions{CacheBytes: 64 << 20, ValueBytes: 16, Durability: durability}
		opened, err := lab.OpenKeyspaces(engine, dir, options, keyspaces)
		f.must(err)
		f.open = opened
	}
	open(lab.Sync)
	f.check()
	f.put("value", keysOfEach, 0, 1, 2, 3, 4, 5)
	f.check()
	f.must(f.open.Close())

	open(lab.NoSync)
	f.check()
	f.put("replaced", 7, 5, 0, 3)
	f.check()
	stop := errors.New("stop")
	err := f.open.Write(func(w lab.KeyspaceWriter) error {
		f.must(w.Put(1, []byte(keyOfKeyspace(3)), []byte("never seen")))
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatal("the error of the work is lost:", err)
	}
	f.check()
	f.must(f.open.RemoveKeyspaces(2, 4))
	clear(f.live[2])
	clear(f.live[3])
	f.check()
	f.put("beside what is gone", 1, 1, 4)
	f.must(f.open.Drain(time.Now().Add(time.Minute)))
	f.check()
	f.must(f.open.Close())

	open(lab.Sync)
	f.check()
	f.put("opened again", 2, 1, 5)
	f.check()
	f.must(f.open.Close())
}

func TestEnginesJSONIsUpToDate(t *testing.T) {
	text, err := os.ReadFile("engines.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, describe()) {
		t.Error("engines.json is old: write it again with `go run . engines > engines.json`")
	}
}
