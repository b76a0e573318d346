package lab

// Suite sizes; crates/esker-bench/src/suites/sizes.rs says what it is for, mixed.go how a mix goes.

import (
	"errors"
	"math"
	"time"

	"esker.invalid/bench/generate"
)

const (
	sizesSeed       = 29
	sizesValueBytes = 500
	sizesCacheBytes = 128 << 20
	sizesLoadBatch  = 1000
	// Several memtables and the cache have to fit into the memory.
	sizesWriteBufferBytes = 16 << 20
)

var (
	sizesUpdates = mix{percent: [5]uint64{0, 0, 100, 0, 0}, ask: generate.Uniform}
	sizesReads   = mix{percent: [5]uint64{100, 0, 0, 0, 0}, ask: generate.Uniform}
)

type sizeOfData struct {
	name  string
	items uint64
}

func sizesOfData(scale string) []sizeOfData {
	items := [3]uint64{60_000, 500_000, 3_000_000}
	switch scale {
	case "test":
		items = [3]uint64{40, 80, 160}
	case "quick":
		items[2] = 2_000_000
	}
	return []sizeOfData{{"in cache", items[0]}, {"in memory", items[1]}, {"beyond memory", items[2]}}
}

func sizesBudget(scale string) budget {
	switch scale {
	case "test":
		return operations(200) // so many and no more, that a traced run and an untraced one do the same
	case "quick":
		return budget{2 * time.Second, math.MaxUint64}
	case "seed":
		return budget{20 * time.Second, math.MaxUint64}
	}
	return budget{300 * time.Second, math.MaxUint64}
}

type sizesSuite struct{}

func (sizesSuite) Name() string { return "sizes" }

func (sizesSuite) Rows(scale string) []Row {
	var rows []Row
	for group, size := range sizesOfData(scale) {
		for _, name := range []string{"reads", "updates", "reads after updates"} {
			rows = append(rows, rate(name+", data "+size.name, group))
		}
	}
	return rows
}

func (s sizesSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	size := sizesOfData(scale)[group]
	durability := Sync
	for _, mode := range []Durability{Async, NoSync} {
		if engine.Cannot(mode.feature()) == "" {
			durability = mode
			break
		}
	}
	store, err := engine.Open(r.dir, OpenOptions{
		CacheBytes: sizesCacheBytes, WriteBufferBytes: sizesWriteBufferBytes, ValueBytes: sizesValueBytes, Durability: durability,
	})
	if err != nil {
		return err
	}
	items := storageItems{generate.StorageItems{Seed: sizesSeed, Sequential: true}, sizesValueBytes}
	run := newMixed(items, store, sizesSeed, r.dir)
	if err := run.load(size.items, sizesLoadBatch); err != nil {
		return err
	}
	// What the load left to do is not the row's.
	if err := r.drain(store); err != nil {
		return err
	}
	budget := sizesBudget(scale)
	period := min(max(budget.time/60, 100*time.Millisecond), 5*time.Second)
	row := func(name string, mix mix) error {
		err := r.row(name+", data "+size.name, func() (outcome, error) { return run.run(mix, budget, period) })
		return errors.Join(err, r.drain(store))
	}
	err = row("reads", sizesReads)
	if why := engine.Cannot(AsyncCommits); err == nil && why != "" {
		return errors.Join(s.readsOnly(run, r, size, why), store.Close())
	}
	if err == nil {
		err = row("updates", sizesUpdates)
	}
	if err == nil {
		err = r.check(run.fullCheck())
	}
	if err == nil {
		err = row("reads after updates", sizesReads)
	}
	return errors.Join(err, store.Close())
}

// readsOnly ends the rows of an engine without async commits, and says why.
func (sizesSuite) readsOnly(run *mixed, r *Recorder, size sizeOfData, why string) error {
	if err := r.check(run.fullCheck()); err != nil {
		return err
	}
	for _, name := range []string{"updates", "reads after updates"} {
		if err := r.failed(name+", data "+size.name, Unsupported{why}); err != nil {
			return err
		}
	}
	return nil
}
