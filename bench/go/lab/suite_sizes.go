package lab

// Suite sizes; crates/esker-bench/src/suites/sizes.rs says what it is for, mixed.go how a mix goes.

import (
	"errors"
	"time"

	"esker.invalid/bench/generate"
)

const (
	sizesSeed       = 29
	sizesWarmUpSeed = 31 // SZ3
	sizesValueBytes = 500
	sizesCacheBytes = 128 << 20
	sizesLoadBatch  = 1000
	// Several memtables and the cache have to fit into the memory.
	sizesWriteBufferBytes = 16 << 20
	// Of the time of a row of reads, what the warm-up before it takes, as long as that is no more than the next (SZ3).
	sizesWarmUpPart = 4
	sizesWarmUpMax  = 10 * time.Second
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
	return budgetOf(scale, 200)
}

// sizesWarmUp is the time of the reads before a row of reads (SZ3).
func sizesWarmUp(b budget) budget {
	return budget{min(b.time/sizesWarmUpPart, sizesWarmUpMax), b.ops / sizesWarmUpPart}
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
	options := OpenOptions{
		CacheBytes: sizesCacheBytes, WriteBufferBytes: sizesWriteBufferBytes, ValueBytes: sizesValueBytes, Durability: durability,
	}
	items := storageItems{generate.StorageItems{Seed: sizesSeed, Sequential: true}, sizesValueBytes}
	run := newMixed(items, nil, sizesSeed, r.dir)
	toLoad := options
	toLoad.AscendingKeys = true
	err := opened(engine, toLoad, r.dir, func(store Store) error {
		run.store = store
		if err := r.loading("items", size.items, func(far *howFar) error { return run.load(size.items, sizesLoadBatch, far) }); err != nil {
			return err
		}
		// What the load left to do is not the row's.
		return r.drain(store)
	})
	if err != nil {
		return err
	}
	budget := sizesBudget(scale)
	period := budget.period()
	row := func(name string, work func() (outcome, error)) error {
		return errors.Join(r.row(name+", data "+size.name, work), r.drain(run.store))
	}
	rowOfReads := func(name, note string) error {
		reads, warmErr := run.warmUp(sizesWarmUpSeed, sizesReads.ask, sizesWarmUp(budget))
		return row(name, noted(note, func() (outcome, error) {
			if warmErr != nil { // a wrong answer is the row's
				return outcome{}, warmErr
			}
			out, err := run.run(sizesReads, budget, period)
			if err == nil {
				out.detail.figure("warm-up reads", float64(reads))
			}
			return out, err
		}))
	}
	why := engine.Cannot(AsyncCommits)
	err = anew(engine, options, r, func(store Store, note string) error {
		run.store = store
		err := rowOfReads("reads", note)
		if err == nil && why == "" {
			err = row("updates", func() (outcome, error) { return run.run(sizesUpdates, budget, period) })
		}
		return err
	})
	if err != nil {
		return err
	}
	err = opened(engine, options, r.dir, func(store Store) error {
		run.store = store
		return r.check(run.fullCheck())
	})
	if err != nil {
		return err
	}
	if why != "" {
		return readsOnly(r, size, why)
	}
	return anew(engine, options, r, func(store Store, note string) error {
		run.store = store
		return rowOfReads("reads after updates", note)
	})
}

// readsOnly ends the rows of an engine without async commits, and says why.
func readsOnly(r *Recorder, size sizeOfData, why string) error {
	for _, name := range []string{"updates", "reads after updates"} {
		if err := r.failed(name+", data "+size.name, Unsupported{why}); err != nil {
			return err
		}
	}
	return nil
}
