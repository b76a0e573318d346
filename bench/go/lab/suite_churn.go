package lab

// Suite churn: as much is removed as is written; crates/esker-bench/src/suites/churn.rs says what each row does.
//
// CH1. Only calls of the engine are between two looks at the clock, and every answer is verified.

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

const (
	churnSeed       = 31
	churnValueBytes = 512
	churnItemBytes  = generate.StorageKeyBytes + churnValueBytes
	churnCacheBytes = 512 << 20
	churnLoadBatch  = 1000

	churnAfterReader = "size after the long reader"
	// Part of the items that is overwritten once more after the reader has gone.
	churnLaterPart = 10
)

var churnUpdates = mix{percent: [5]uint64{0, 0, 100, 0, 0}, ask: generate.Uniform}

// Groups of the suite.
const (
	churnQueue = iota
	churnExpiry
	churnLongReader
)

func churnLiveItems(scale string) uint64 {
	switch scale {
	case "test":
		return 50
	case "quick":
		return 20_000
	case "seed":
		return 200_000
	}
	return 2_000_000
}

func churnBudget(scale string) budget { return budgetOf(scale, 300) }

type churnSuite struct{}

func (churnSuite) Name() string { return "churn" }

func (churnSuite) Rows(string) []Row {
	sizeOf := func(name string, group int) Row { return Row{Name: name, Unit: "bytes", Ops: 1, Group: group} }
	return []Row{
		rate("queue", churnQueue),
		sizeOf("size of the queue", churnQueue),
		rate("expiry", churnExpiry),
		sizeOf("size with expiry", churnExpiry),
		rate("overwrites under a long reader", churnLongReader),
		sizeOf("size under a long reader", churnLongReader),
		sizeOf(churnAfterReader, churnLongReader),
	}
}

func (s churnSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	if why := engine.Cannot(AsyncCommits); why != "" {
		return cannotGroup(s, scale, group, why, r)
	}
	// A queue's keys are in the order in which they are pushed.
	isQueue := group == churnQueue
	options := OpenOptions{CacheBytes: churnCacheBytes, ValueBytes: churnValueBytes, Durability: Async, AscendingKeys: isQueue}
	store, err := engine.Open(r.dir, options)
	if err != nil {
		return err
	}
	items := storageItems{generate.StorageItems{Seed: churnSeed, Sequential: isQueue}, churnValueBytes}
	live := churnLiveItems(scale)
	run := newMixed(items, store, churnSeed, r.dir)
	if err := cmp.Or(r.loading("items", live, func(far *howFar) error { return run.load(live, churnLoadBatch, far) }), r.drain(store)); err != nil {
		return err
	}
	if group == churnLongReader {
		if err := errors.Join(longReader(run, live, churnBudget(scale), r), store.Close()); err != nil {
			return err
		}
		return settledSize(engine, options, churnAfterReader, live, r)
	}
	w := &window{items: items, store: store, tail: live, rng: generate.NewRng(churnSeed), val: make([]byte, churnValueBytes)}
	row, kinds, work := "queue", []string{"push", "pop"}, w.queue
	if group == churnExpiry {
		row, kinds, work = "expiry", []string{"replace", "read", "read of an expired item"}, w.expiry
	}
	err = r.row(row, func() (outcome, error) {
		calls := newCalls(kinds, churnBudget(scale), r.dir)
		defer calls.track.abandon()
		return work(calls, live)
	})
	if err := errors.Join(err, r.drain(store)); err != nil {
		return err
	}
	if err := errors.Join(r.check(w.check()), store.Close()); err != nil {
		return err
	}
	return settledSize(engine, options, rowsOf(s, scale, group)[1].Name, live, r)
}

// settledSize closes and opens the database: only then has each engine let go of what it keeps to write over, or has replaced.
func settledSize(engine Engine, options OpenOptions, row string, live uint64, r *Recorder) error {
	store, err := engine.Open(r.dir, options)
	if err != nil {
		return err
	}
	return errors.Join(r.drain(store), r.sizeRow(row, live*churnItemBytes), store.Close())
}

// calls of the engine, each between two looks at the clock.
type calls struct {
	track  *track
	busy   time.Duration
	budget budget
}

func newCalls(kinds []string, budget budget, dir string) *calls {
	period := budget.period()
	return &calls{track: newTrack(kinds, period, dir), budget: budget}
}

func (c *calls) areLeft() bool {
	return c.track.ops < c.budget.ops && c.track.elapsed() < c.budget.time
}

func (c *calls) call(kind int, call func() error) error { return c.callFor(kind, 1, call) }

// callFor is one call that does ops operations.
func (c *calls) callFor(kind int, ops uint64, call func() error) error {
	from := time.Now()
	err := call()
	to := time.Now()
	if err != nil {
		return err
	}
	c.busy += to.Sub(from)
	c.track.record(kind, from, to, ops)
	return nil
}

// finish is the outcome of the row: its commits wrote userWrittenBytes bytes of keys and values, and liveBytes of them are alive at the end.
func (c *calls) finish(commits, userWrittenBytes, liveBytes uint64) outcome {
	wall := c.track.elapsed().Seconds()
	detail := c.track.finish("closed")
	detail.figure("wall ops/s", float64(c.track.ops)/wall)
	return outcome{
		seconds: c.busy.Seconds(), ops: c.track.ops, commits: commits, userWrittenBytes: userWrittenBytes,
		liveBytes: liveBytes, detail: detail,
	}
}

// window: items head..tail are alive; those before it were removed, the others come.
type window struct {
	items      storageItems
	store      Store
	head, tail uint64
	rng        *generate.Rng
	val        []byte
}

func (w *window) keyOf(i uint64) []byte {
	return w.items.key(i, make([]byte, generate.StorageKeyBytes))
}

func (w *window) fill(i uint64) uint64 {
	w.items.fill(i, 0, w.val)
	return generate.Probe(w.val)
}

func (w *window) queue(calls *calls, live uint64) (outcome, error) {
	const push, pop = 0, 1
	first := w.head
	for calls.areLeft() {
		w.fill(w.tail)
		key := w.keyOf(w.tail)
		put := func(writer Writer) error { return writer.Put(key, w.val) }
		if err := calls.call(push, func() error { return w.store.Write(put) }); err != nil {
			return outcome{}, err
		}
		w.tail++
		head, got := make([]byte, 0, generate.StorageKeyBytes), uint64(0)
		show := func(key, value []byte) {
			head = append(head[:0], key...)
			got = generate.Probe(value)
		}
		remove := func(writer Writer) error { return writer.Remove(head) }
		err := calls.call(pop, func() error {
			_, err := w.store.Range(nil, 1, show)
			return cmp.Or(err, w.store.Write(remove))
		})
		switch {
		case err != nil:
			return outcome{}, err
		case !slices.Equal(head, w.keyOf(w.head)):
			return outcome{}, wrong{"what was popped was not the head"}
		}
		if err := expect("the value that was popped", got, w.fill(w.head)); err != nil {
			return outcome{}, err
		}
		w.head++
	}
	steps := w.head - first
	return calls.finish(2*steps, steps*(churnItemBytes+generate.StorageKeyBytes), live*churnItemBytes), nil
}

func (w *window) expiry(calls *calls, live uint64) (outcome, error) {
	const replace, read, readExpired = 0, 1, 2
	first := w.head
	for calls.areLeft() {
		w.fill(w.tail)
		fresh, old := w.keyOf(w.tail), w.keyOf(w.head)
		work := func(writer Writer) error { return cmp.Or(writer.Put(fresh, w.val), writer.Remove(old)) }
		if err := calls.call(replace, func() error { return w.store.Write(work) }); err != nil {
			return outcome{}, err
		}
		w.head++
		w.tail++
		alive, got := w.head+w.rng.Below(live), uint64(0)
		key := w.keyOf(alive)
		visit := func(value []byte) { got = generate.Probe(value) }
		err := calls.call(read, func() error {
			_, err := w.store.Get(key, visit)
			return err
		})
		if err := cmp.Or(err, expect("the value of a live item", got, w.fill(alive))); err != nil {
			return outcome{}, err
		}
		key = w.keyOf(w.rng.Below(w.head))
		isThere, look := false, func([]byte) {}
		err = calls.call(readExpired, func() (err error) {
			isThere, err = w.store.Get(key, look)
			return err
		})
		switch {
		case err != nil:
			return outcome{}, err
		case isThere:
			return outcome{}, wrong{"an expired item is there"}
		}
	}
	steps := w.head - first
	return calls.finish(steps, steps*(churnItemBytes+generate.StorageKeyBytes), live*churnItemBytes), nil
}

// check compares every byte of the store with what must be there.
func (w *window) check() error {
	expected := uint64(0)
	for i := w.head; i < w.tail; i++ {
		w.fill(i)
		expected += generate.Checksum(w.keyOf(i), w.val)
	}
	return withReader(w.store, func(reader Reader) error { return fullScan(reader, w.tail-w.head, expected) })
}

func longReader(run *mixed, live uint64, budget budget, r *Recorder) error {
	period := budget.period()
	budget.ops = min(budget.ops, live)
	reader, err := run.store.Reader()
	if err != nil {
		return err
	}
	err = r.row("overwrites under a long reader", func() (outcome, error) {
		return run.run(churnUpdates, budget, period)
	})
	if err := errors.Join(err, r.drain(run.store)); err != nil {
		return errors.Join(err, reader.Close())
	}
	expected := uint64(0)
	for i := range live {
		run.fill(i, 0, run.val)
		expected += generate.Checksum(run.keyOf(i), run.val)
	}
	err = r.checkRow(fullScan(reader, live, expected))
	err = errors.Join(err, r.sizeRow("size under a long reader", live*churnItemBytes), reader.Close())
	if err != nil {
		return err
	}
	// Several engines give space back within later commits only.
	budget.ops = max(live/churnLaterPart, 1)
	if _, err := run.run(churnUpdates, budget, period); err != nil {
		return err
	}
	return errors.Join(r.drain(run.store), r.check(run.fullCheck()))
}
