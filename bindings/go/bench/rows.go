package main

import (
	"fmt"
	"math/rand/v2"
)

const (
	keyBytes   = 16
	valueBytes = 100
	batchItems = 1000
	rangeItems = 10
	synced     = 200
)

// data is what a round writes and looks up. All bytes are random, so nothing can be compressed. The keys have
// no pointers of their own, which the garbage collector would visit while an engine is measured.
type data struct {
	items  int
	keys   []byte
	bytes  []byte
	random *rand.Rand
}

func newData(items int, seed uint64) *data {
	random := rand.NewChaCha8([32]byte{byte(seed), 1})
	d := &data{
		items: items, keys: make([]byte, items*keyBytes), bytes: make([]byte, 1<<20), random: rand.New(random),
	}
	_, _ = random.Read(d.keys)
	_, _ = random.Read(d.bytes)
	return d
}

func (d *data) keyAt(n int) []byte { return d.keys[n*keyBytes : (n+1)*keyBytes : (n+1)*keyBytes] }

func (d *data) key() []byte { return d.keyAt(d.random.IntN(d.items)) }

func (d *data) value() []byte {
	at := d.random.IntN(len(d.bytes) - valueBytes)
	return d.bytes[at : at+valueBytes : at+valueBytes]
}

// A row is a line of the table: run returns how many items it has handled.
type row struct {
	name    string
	run     func(store, *data) (int, error)
	prepare func(store) error
	// The durability that an engine must have, if any.
	needs *durability
}

var rows = []row{
	{name: "batches of 1,000", run: load},
	{name: "get", prepare: store.settle, run: func(s store, d *data) (int, error) { return gets(s, d, false) }},
	{name: "get, missing", run: func(s store, d *data) (int, error) { return gets(s, d, true) }},
	{name: "scan of all", run: scanAll},
	{name: "range of 10", run: ranges},
	{name: "put", needs: is(buffered), run: puts(buffered, 20)},
	{name: "9 gets, 1 put", needs: is(buffered), run: mixed(buffered)},
	{name: "put, nothing waited for", needs: is(noWait), run: puts(noWait, 20)},
	{name: "9 gets, 1 put, nothing waited for", needs: is(noWait), run: mixed(noWait)},
	{name: "put, synced", needs: is(onDisk), prepare: store.sync, run: putsSynced},
}

func is(d durability) *durability { return &d }

func load(s store, d *data) (int, error) {
	keys := make([][]byte, 0, batchItems)
	values := make([][]byte, 0, batchItems)
	for from := 0; from < d.items; from += batchItems {
		keys, values = keys[:0], values[:0]
		for n := from; n < min(from+batchItems, d.items); n++ {
			keys, values = append(keys, d.keyAt(n)), append(values, d.value())
		}
		if err := s.batch(keys, values); err != nil {
			return 0, err
		}
	}
	return d.items, nil
}

func gets(s store, d *data, missing bool) (int, error) {
	count := d.items / 2
	want := valueBytes
	var absent [keyBytes]byte
	for range count {
		key := d.key()
		if missing {
			want = -1
			copy(absent[:], key)
			absent[keyBytes-1]++
			key = absent[:]
		}
		got, err := s.get(key)
		if err != nil {
			return 0, err
		}
		if got != want {
			return 0, fmt.Errorf("a value of %d bytes, not %d", got, want)
		}
	}
	return count, nil
}

func scanAll(s store, d *data) (int, error) {
	entries, err := s.scan(nil, d.items)
	if err == nil && entries != d.items {
		err = fmt.Errorf("a scan of %d entries, not %d", entries, d.items)
	}
	return entries, err
}

func ranges(s store, d *data) (int, error) {
	count := d.items / 20
	for range count {
		if _, err := s.scan(d.key(), rangeItems); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// puts sets one of some entries to another value, each in a commit of its own.
func puts(durability durability, one int) func(store, *data) (int, error) {
	return func(s store, d *data) (int, error) {
		count := d.items / one
		for range count {
			if err := s.put(d.key(), d.value(), durability); err != nil {
				return 0, err
			}
		}
		return count, nil
	}
}

func putsSynced(s store, d *data) (int, error) {
	for range synced {
		if err := s.put(d.key(), d.value(), onDisk); err != nil {
			return 0, err
		}
	}
	return synced, nil
}

func mixed(durability durability) func(store, *data) (int, error) {
	return func(s store, d *data) (int, error) {
		count := d.items / 5
		for n := range count {
			var err error
			if n%10 == 0 {
				err = s.put(d.key(), d.value(), durability)
			} else {
				_, err = s.get(d.key())
			}
			if err != nil {
				return 0, err
			}
		}
		return count, nil
	}
}
