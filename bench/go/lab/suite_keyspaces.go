package lab

// Suite keyspaces: many keyspaces in one database; crates/esker-bench/src/suites/keyspaces.rs says what each row does.
//
// KE1. Only calls of the engine are between two looks at the clock, and every answer is verified.

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

const (
	keyspacesSeed       = 37
	keyspacesValueBytes = 128
	keyspacesItemBytes  = generate.StorageKeyBytes + keyspacesValueBytes
	keyspacesCacheBytes = 512 << 20
	keyspacesLoadBatch  = 1000
	keyspacesInCommit   = 5 // that a random commit writes to
	keyspacesPrefixes   = "keyspaces are prefixes of 4 bytes in one order"
)

// keyspacesCounts says how many keyspaces there are, and how many items in all of them.
func keyspacesCounts(scale string) (keyspaces uint32, items uint64) {
	switch scale {
	case "test":
		return 5, 5 * 10
	case "quick":
		return 200, 200 * 200
	case "seed":
		return 1_000, 1_000 * 2_000
	}
	return 10_000, 10_000 * 2_000
}

func keyspacesBudget(scale string) budget {
	return budgetOf(scale, 200)
}

func keyspacesOptions(durability Durability) OpenOptions {
	return OpenOptions{CacheBytes: keyspacesCacheBytes, ValueBytes: keyspacesValueBytes, Durability: durability}
}

type keyspacesSuite struct{}

func (keyspacesSuite) Name() string { return "keyspaces" }

func (keyspacesSuite) Rows(string) []Row {
	return []Row{
		seconds("create", 1).withCommits(1),
		rate("load", 0),
		rate("random commits", 0),
		rate("random read", 0),
		seconds("open", 1),
		seconds("drop", 1).withCommits(1),
		size("size"),
	}
}

func (keyspacesSuite) Run(engine Engine, scale string, _ int, r *Recorder) error {
	run := newKeyspacesRun(engine, scale, r.dir)
	if err := run.create(r); err != nil {
		return err
	}
	durability := NoSync
	why := engine.Cannot(AsyncCommits)
	if why == "" {
		durability = Async
	}
	options := keyspacesOptions(durability)
	keyspaces, err := run.open(options)
	if err != nil {
		return err
	}
	if why == "" {
		err = run.writes(keyspaces, r)
	} else {
		err = run.loadWithoutARow(keyspaces, why, r)
	}
	if err != nil {
		return err
	}
	err = r.row("random read", func() (outcome, error) { return run.reads(keyspaces) })
	if err := errors.Join(err, keyspaces.Close()); err != nil {
		return err
	}
	if keyspaces, err = run.openAndGet(options, r); err != nil {
		return err
	}
	if err := r.check(run.check(keyspaces, 0)); err != nil {
		return err
	}
	if err := run.drop(keyspaces, r); err != nil {
		return err
	}
	if keyspaces, err = run.open(options); err != nil {
		return err
	}
	return errors.Join(r.drain(keyspaces), r.sizeRow("size", run.staying(run.count/2)*keyspacesItemBytes), keyspaces.Close())
}

// keyspaceItem is an item as it is written.
type keyspaceItem struct {
	keyspace   uint32
	key, value []byte
}

func writeKeyspaceItems(items []keyspaceItem) func(w KeyspaceWriter) error {
	return func(w KeyspaceWriter) error {
		for _, item := range items {
			if err := w.Put(item.keyspace, item.key, item.value); err != nil {
				return err
			}
		}
		return nil
	}
}

// notedPrefixes says of a row that it had prefixes.
func notedPrefixes(keyspaces Keyspaces, out outcome) outcome {
	if _, arePrefixes := keyspaces.(*prefixed); arePrefixes {
		out.note = keyspacesPrefixes
	}
	return out
}

type keyspacesRun struct {
	engine   Engine
	dir      string
	budget   budget
	count    uint32 // of keyspaces
	items    generate.KeyspaceItems
	versions []uint32 // the newest of each item
	rng      *generate.Rng
}

func newKeyspacesRun(engine Engine, scale, dir string) *keyspacesRun {
	count, items := keyspacesCounts(scale)
	return &keyspacesRun{
		engine: engine, dir: dir, budget: keyspacesBudget(scale), count: count, items: generate.NewKeyspaceItems(keyspacesSeed, count),
		versions: make([]uint32, items), rng: generate.NewRng(keyspacesSeed),
	}
}

func (run *keyspacesRun) itemCount() uint64 { return uint64(len(run.versions)) }
func (run *keyspacesRun) liveBytes() uint64 { return run.itemCount() * keyspacesItemBytes }

func (run *keyspacesRun) item(i, version uint64) keyspaceItem {
	key := new([generate.StorageKeyBytes]byte)
	value := run.items.Value(i, version, make([]byte, keyspacesValueBytes))
	return keyspaceItem{run.items.Keyspace(i), run.items.Key(i, key), value}
}

func (run *keyspacesRun) newest(i uint64) keyspaceItem { return run.item(i, uint64(run.versions[i])) }

func (run *keyspacesRun) open(options OpenOptions) (Keyspaces, error) {
	return OpenKeyspaces(run.engine, run.dir, options, run.count)
}

// create opens a database that is not there yet.
func (run *keyspacesRun) create(r *Recorder) error {
	var created Keyspaces
	put := writeKeyspaceItems([]keyspaceItem{run.item(0, 0)})
	err := r.row("create", func() (out outcome, err error) {
		start := time.Now()
		if created, err = run.open(keyspacesOptions(Sync)); err != nil {
			return out, err
		}
		// Where keyspaces are prefixes, nothing is synced but this.
		err = created.Write(put)
		took := time.Since(start).Seconds()
		return notedPrefixes(created, outcome{seconds: took, userWrittenBytes: keyspacesItemBytes, liveBytes: keyspacesItemBytes}), err
	})
	if err != nil || created == nil {
		return err
	}
	return errors.Join(r.drain(created), created.Close())
}

func (run *keyspacesRun) load(keyspaces Keyspaces) (outcome, error) {
	calls, commits := newCalls([]string{"transaction"}, operations(run.itemCount()), run.dir), uint64(0)
	defer calls.track.abandon()
	for first := uint64(0); first < run.itemCount(); first += keyspacesLoadBatch {
		next := min(first+keyspacesLoadBatch, run.itemCount())
		var items []keyspaceItem
		for i := first; i < next; i++ {
			items = append(items, run.item(i, 0))
		}
		put := writeKeyspaceItems(items)
		if err := calls.callFor(0, next-first, func() error { return keyspaces.Write(put) }); err != nil {
			return outcome{}, err
		}
		commits++
	}
	return notedPrefixes(keyspaces, calls.finish(commits, run.liveBytes(), run.liveBytes())), nil
}

// writes are the rows that write.
func (run *keyspacesRun) writes(keyspaces Keyspaces, r *Recorder) error {
	err := r.row("load", func() (outcome, error) { return run.load(keyspaces) })
	if err := cmp.Or(err, r.drain(keyspaces)); err != nil {
		return err
	}
	err = r.row("random commits", func() (outcome, error) { return run.commits(keyspaces) })
	return cmp.Or(err, r.drain(keyspaces))
}

// loadWithoutARow is for an engine that has no async commits, and says why.
func (run *keyspacesRun) loadWithoutARow(keyspaces Keyspaces, why string, r *Recorder) error {
	if err := r.failed("load", Unsupported{why}); err != nil {
		return err
	}
	if _, err := run.load(keyspaces); err != nil {
		return err
	}
	return errors.Join(r.drain(keyspaces), r.failed("random commits", Unsupported{why}))
}

// draw gives items in as many keyspaces.
func (run *keyspacesRun) draw() []uint64 {
	var drawn []uint64
	for len(drawn) < keyspacesInCommit {
		i := run.rng.Below(run.itemCount())
		keyspace := run.items.Keyspace(i)
		if !slices.ContainsFunc(drawn, func(other uint64) bool { return run.items.Keyspace(other) == keyspace }) {
			drawn = append(drawn, i)
		}
	}
	return drawn
}

func (run *keyspacesRun) commits(keyspaces Keyspaces) (outcome, error) {
	calls, commits := newCalls([]string{"transaction"}, run.budget, run.dir), uint64(0)
	defer calls.track.abandon()
	for calls.areLeft() {
		var items []keyspaceItem
		for _, i := range run.draw() {
			run.versions[i]++
			items = append(items, run.newest(i))
		}
		put := writeKeyspaceItems(items)
		if err := calls.call(0, func() error { return keyspaces.Write(put) }); err != nil {
			return outcome{}, err
		}
		commits++
	}
	return notedPrefixes(keyspaces, calls.finish(commits, commits*keyspacesInCommit*keyspacesItemBytes, run.liveBytes())), nil
}

func (run *keyspacesRun) reads(keyspaces Keyspaces) (outcome, error) {
	calls := newCalls([]string{"read"}, run.budget, run.dir)
	defer calls.track.abandon()
	for calls.areLeft() {
		expected, got := run.newest(run.rng.Below(run.itemCount())), uint64(0)
		visit := func(value []byte) { got = generate.Probe(value) }
		err := calls.call(0, func() error {
			_, err := keyspaces.Get(expected.keyspace, expected.key, visit)
			return err
		})
		if err := cmp.Or(err, expect("the value that a get returned", got, generate.Probe(expected.value))); err != nil {
			return outcome{}, err
		}
	}
	return notedPrefixes(keyspaces, calls.finish(0, 0, run.liveBytes())), nil
}

func (run *keyspacesRun) openAndGet(options OpenOptions, r *Recorder) (reopened Keyspaces, err error) {
	expected, got := run.newest(run.itemCount()/2), uint64(0)
	visit := func(value []byte) { got = generate.Probe(value) }
	err = r.row("open", func() (out outcome, err error) {
		start := time.Now()
		if reopened, err = run.open(options); err != nil {
			return out, err
		}
		_, err = reopened.Get(expected.keyspace, expected.key, visit)
		out = notedPrefixes(reopened, outcome{seconds: time.Since(start).Seconds(), liveBytes: run.liveBytes()})
		return out, cmp.Or(err, expect("the value that the first get returned", got, generate.Probe(expected.value)))
	})
	if err == nil && reopened == nil {
		err = errors.New("the database could not be opened again")
	}
	return reopened, err
}

// drop removes half of the keyspaces and closes; the row's value is the time of one.
func (run *keyspacesRun) drop(keyspaces Keyspaces, r *Recorder) error {
	removed := run.count / 2
	stay := run.staying(removed)
	err := r.row("drop", func() (outcome, error) {
		start := time.Now()
		err := keyspaces.RemoveKeyspaces(0, removed)
		each := time.Since(start).Seconds() / float64(removed)
		return notedPrefixes(keyspaces, outcome{value: each, liveBytes: stay * keyspacesItemBytes}), err
	})
	if err := errors.Join(err, r.drain(keyspaces)); err != nil {
		return err
	}
	return errors.Join(r.check(run.check(keyspaces, removed)), keyspaces.Close())
}

// staying are the items that are in none of the first keyspaces.
func (run *keyspacesRun) staying(removed uint32) (stay uint64) {
	for i := range run.itemCount() {
		if run.items.Keyspace(i) >= removed {
			stay++
		}
	}
	return stay
}

// check compares every byte of each keyspace with what must be there: nothing in the first ones, which were removed.
func (run *keyspacesRun) check(keyspaces Keyspaces, removed uint32) error {
	type content struct{ items, sum uint64 }
	expected := make([]content, run.count)
	for i := range run.itemCount() {
		if item := run.newest(i); item.keyspace >= removed {
			content := &expected[item.keyspace]
			content.items++
			content.sum += generate.Checksum(item.key, item.value)
		}
	}
	for keyspace, content := range expected {
		err := checkScan(content.items, content.sum, func(visit func(key, value []byte)) (uint64, error) {
			return keyspaces.Range(uint32(keyspace), nil, content.items+1, visit)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
