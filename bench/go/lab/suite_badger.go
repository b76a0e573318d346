package lab

// Suite badger; crates/esker-bench/src/suites/badger.rs says where it is from.

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"esker.invalid/bench/generate"
)

const (
	badgerSeed           = 13
	badgerCacheBytes     = 4 << 30
	badgerIterateKeys    = 2_000_000
	badgerPeriod         = 250 * time.Millisecond
	badgerPopulatePeriod = 5 * time.Second
)

var badgerSizes = []struct {
	bytes int
	name  string
}{{16 << 10, "16 KB"}, {1 << 10, "1 KB"}, {128, "128 B"}}

// badgerCounts gives the keys to write, how long random reads go on, and after how many they end.
func badgerCounts(scale string, group int) (keys uint64, reading time.Duration, reads uint64) {
	switch scale {
	case "quick":
		return []uint64{5_000, 50_000, 200_000}[group], time.Second, ^uint64(0)
	case "full":
		return []uint64{5_000_000, 75_000_000, 250_000_000}[group], 180 * time.Second, ^uint64(0)
	case "test":
		return []uint64{300, 500, 1_000}[group], time.Hour, 500
	}
	return []uint64{1_000_000, 10_000_000, 50_000_000}[group], 20 * time.Second, ^uint64(0)
}

// badgerBatch is the items of a commit: a test has several.
func badgerBatch(scale string) uint64 {
	if scale == "test" {
		return 20
	}
	return 1000
}

type badgerSuite struct{}

func (badgerSuite) Name() string { return "badger" }

func (badgerSuite) Rows(scale string) []Row {
	var rows []Row
	for group, size := range badgerSizes {
		keys, _, _ := badgerCounts(scale, group)
		batch := badgerBatch(scale)
		row := func(name string, ops uint64) Row {
			return Row{Name: fmt.Sprintf("%s (%s)", name, size.name), Unit: "s", Ops: ops, Group: group}
		}
		rows = append(rows,
			row("populate", keys).withCommits((keys+batch-1)/batch),
			row("iterate keys only, cold", 1),
			row("random read", 1),
			row("iterate with values", 1),
			row("iterate keys only", 1))
	}
	return rows
}

func (badgerSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	size := badgerSizes[group]
	keys, reading, reads := badgerCounts(scale, group)
	run := &badgerRun{
		items: generate.NewBadgerItems(badgerSeed, size.bytes), keys: keys, batch: badgerBatch(scale), exists: make([]uint64, (keys+63)/64),
	}
	options := OpenOptions{CacheBytes: badgerCacheBytes, ValueBytes: size.bytes}
	row := func(name string, work func() (outcome, error)) error {
		return r.row(fmt.Sprintf("%s (%s)", name, size.name), work)
	}
	if err := run.populated(engine, options, r, row); err != nil {
		return err
	}
	if err := run.cold(engine, options, r, row); err != nil {
		return err
	}
	err := anew(engine, options, r, func(store Store, note string) error {
		return row("random read", noted(note, func() (outcome, error) { return run.randomReads(store, reading, reads, r.dir) }))
	})
	if err != nil {
		return err
	}
	return anew(engine, options, r, func(store Store, note string) error {
		if err := row("iterate with values", noted(note, func() (outcome, error) { return run.iterate(store) })); err != nil {
			return err
		}
		return row("iterate keys only", noted(note, func() (outcome, error) { return run.iterateKeys(store, time.Now()) }))
	})
}

// badgerRow records a row of a size.
type badgerRow func(name string, work func() (outcome, error)) error

// populated writes everything; what is checked was opened anew, as on the Rust side.
func (run *badgerRun) populated(engine Engine, options OpenOptions, r *Recorder, row badgerRow) error {
	err := opened(engine, options, r.dir, func(store Store) error {
		err := row("populate", func() (outcome, error) { return run.populate(store, r.dir, r.howFar("keys", run.keys)) })
		return errors.Join(err, r.drain(store))
	})
	if err != nil {
		return err
	}
	return opened(engine, options, r.dir, func(store Store) error { return r.check(run.fullCheck(store)) })
}

func (run *badgerRun) cold(engine Engine, options OpenOptions, r *Recorder, row badgerRow) error {
	isCold := dropPageCache()
	var fresh Store
	err := row("iterate keys only, cold", func() (outcome, error) {
		if !isCold {
			return outcome{}, Unsupported{notCold}
		}
		start := time.Now()
		store, err := engine.Open(r.dir, options)
		if err != nil {
			return outcome{}, err
		}
		fresh = store
		return run.iterateKeys(store, start)
	})
	if fresh == nil {
		return err
	}
	return errors.Join(err, fresh.Close())
}

type badgerRun struct {
	items  *generate.BadgerItems
	keys   uint64
	batch  uint64
	exists []uint64 // a bit for each number of the key range
	live   uint64
}

func (run *badgerRun) has(k uint64) bool { return run.exists[k/64]>>(k%64)&1 == 1 }

func (run *badgerRun) itemBytes() uint64 {
	return generate.BadgerKeyBytes + uint64(len(run.items.Value(0)))
}

func (run *badgerRun) populate(store Store, dir string, far *howFar) (outcome, error) {
	track := newTrack([]string{"write"}, badgerPopulatePeriod, dir)
	defer track.abandon()
	draws := run.items.Draws()
	var key [generate.BadgerKeyBytes]byte
	for written := uint64(0); written < run.keys; {
		numbers := make([]uint64, min(run.batch, run.keys-written))
		for i := range numbers {
			numbers[i] = draws.Below(run.keys)
		}
		from := time.Now()
		if err := run.putAll(store, numbers, &key); err != nil {
			return outcome{}, err
		}
		to := time.Now()
		track.record(0, from, to, uint64(len(numbers)))
		for _, k := range numbers {
			if !run.has(k) {
				run.live++
			}
			run.exists[k/64] |= 1 << (k % 64)
		}
		written += uint64(len(numbers))
		if err := far.at(written, to); err != nil {
			return outcome{}, err
		}
	}
	return outcome{
		detail: track.finish("closed"), userWrittenBytes: run.keys * run.itemBytes(), liveBytes: run.live * run.itemBytes(),
	}, nil
}

// putAll writes a batch in one transaction, or in halves where the engine finds it too large.
func (run *badgerRun) putAll(store Store, numbers []uint64, key *[generate.BadgerKeyBytes]byte) error {
	err := store.Write(func(w Writer) error {
		for _, k := range numbers {
			if err := w.Put(run.items.Key(k, key), run.items.Value(k)); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, ErrTooLarge) && len(numbers) > 1 {
		half := len(numbers) / 2
		if err := run.putAll(store, numbers[:half], key); err != nil {
			return err
		}
		return run.putAll(store, numbers[half:], key)
	}
	return err
}

// randomReads gives the time of one read.
func (run *badgerRun) randomReads(store Store, reading time.Duration, reads uint64, dir string) (outcome, error) {
	rng := generate.NewRng(badgerSeed + 1)
	track := newTrack([]string{"read"}, badgerPeriod, dir)
	defer track.abandon()
	hits, busy := uint64(0), time.Duration(0)
	var key [generate.BadgerKeyBytes]byte
	got := uint64(0)
	visit := func(value []byte) { got = generate.Probe(value) }
	for track.elapsed() < reading && track.ops < reads {
		k := rng.Below(run.keys)
		run.items.Key(k, &key)
		from := time.Now()
		found, err := store.Get(key[:], visit)
		to := time.Now()
		if err != nil {
			return outcome{}, err
		}
		busy += to.Sub(from)
		track.record(0, from, to, 1)
		if found != run.has(k) {
			return outcome{}, wrong{fmt.Sprintf("get of number %d: found is %t", k, found)}
		}
		if found {
			hits++
			if err := expect("value of a number", got, generate.Probe(run.items.Value(k))); err != nil {
				return outcome{}, err
			}
		}
	}
	ops := float64(track.ops)
	detail := track.finish("closed")
	detail.figure("hit rate", float64(hits)/ops)
	return outcome{value: busy.Seconds() / ops, detail: detail, liveBytes: run.live * run.itemBytes()}, nil
}

// fromTheStart visits the first numbers that exist.
func (run *badgerRun) fromTheStart(visit func(k uint64)) {
	for k, left := uint64(0), badgerIterateKeys; k < run.keys && left > 0; k++ {
		if run.has(k) {
			visit(k)
			left--
		}
	}
}

func (run *badgerRun) iterate(store Store) (outcome, error) {
	sum, expected := uint64(0), uint64(0)
	start := time.Now()
	count, err := store.Range(nil, badgerIterateKeys, func(key, value []byte) {
		sum = addPair(sum, key, value)
	})
	took := time.Since(start).Seconds()
	var key [generate.BadgerKeyBytes]byte
	run.fromTheStart(func(k uint64) {
		expected = addPair(expected, run.items.Key(k, &key), run.items.Value(k))
	})
	return outcome{seconds: took, ops: count}, cmp.Or(err, expect("sum of the items", sum, expected))
}

// iterateKeys runs the clock from start.
func (run *badgerRun) iterateKeys(store Store, start time.Time) (outcome, error) {
	sum, expected, count := uint64(0), uint64(0), uint64(0)
	err := withReader(store, func(reader Reader) (err error) {
		count, err = reader.Keys(nil, badgerIterateKeys, func(key []byte) {
			sum = bits.RotateLeft64(sum, 1) + generate.Probe(key)
		})
		return err
	})
	took := time.Since(start).Seconds()
	var key [generate.BadgerKeyBytes]byte
	run.fromTheStart(func(k uint64) {
		expected = bits.RotateLeft64(expected, 1) + generate.Probe(run.items.Key(k, &key))
	})
	return outcome{seconds: took, ops: count}, cmp.Or(err, expect("sum of the keys", sum, expected))
}

func (run *badgerRun) fullCheck(store Store) error {
	expected := uint64(0)
	var key [generate.BadgerKeyBytes]byte
	for k := range run.keys {
		if run.has(k) {
			expected += generate.Checksum(run.items.Key(k, &key), run.items.Value(k))
		}
	}
	return withReader(store, func(reader Reader) error { return fullScan(reader, run.live, expected) })
}
