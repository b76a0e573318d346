package lab

// Suite storage-bench; crates/esker-bench/src/suites/storage_bench.rs says where it is from, mixed.go how a mix goes.

import (
	"cmp"
	"errors"

	"esker.invalid/bench/generate"
)

const (
	storageSeed       = 7
	storageCacheBytes = 512 << 20
	storageScanItems  = 100
	storageLoadBatch  = 1000
	storageFirstItems = 100
)

type storageWorkload struct {
	name       string
	percent    [5]uint64
	durability Durability
	sequential bool
	valueBytes int
	loaded     uint64
}

func storageWorkloads(scale string) []storageWorkload {
	items, largeItems := uint64(5_000_000), uint64(150_000)
	switch scale {
	case "test":
		items, largeItems = 300, 20
	case "quick":
		items, largeItems = 100_000, 5_000
	}
	h, g := [5]uint64{50, 20, 10, 20, 0}, [5]uint64{5, 0, 0, 95, 0}
	return []storageWorkload{
		{"H rand", h, Async, false, 512, storageFirstItems},
		{"H seq", h, Async, true, 512, storageFirstItems},
		{"H large rand 512", h, Async, false, 512, items},
		{"H large rand 20000", h, Async, false, 20_000, largeItems},
		{"G sync", g, Sync, false, 512, storageFirstItems},
	}
}

func storageBudget(scale string) budget {
	return budgetOf(scale, 300)
}

// storageItems are the generator's, as a mix wants them.
type storageItems struct {
	generate.StorageItems
	valueBytes int
}

func (s storageItems) key(i uint64, key []byte) []byte {
	return s.Key(i, (*[generate.StorageKeyBytes]byte)(key))
}
func (s storageItems) item(key []byte) (uint64, bool)       { return s.Item(key) }
func (s storageItems) fill(i, version uint64, value []byte) { s.Value(i, version, value) }
func (s storageItems) lengths() (int, int)                  { return generate.StorageKeyBytes, s.valueBytes }

type storageBenchSuite struct{}

func (storageBenchSuite) Name() string { return "storage-bench" }

func (storageBenchSuite) Rows(scale string) []Row {
	var rows []Row
	for group, workload := range storageWorkloads(scale) {
		rows = append(rows, rate(workload.name, group))
	}
	return rows
}

func (s storageBenchSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	workload := storageWorkloads(scale)[group]
	if why := engine.Cannot(workload.durability.feature()); why != "" {
		return cannotGroup(s, scale, group, why, r)
	}
	fast := NoSync
	if engine.Cannot(AsyncCommits) == "" {
		fast = Async
	}
	store, err := engine.Open(r.dir, OpenOptions{
		CacheBytes: storageCacheBytes, ValueBytes: workload.valueBytes, Durability: fast, AscendingKeys: workload.sequential,
	})
	if err != nil {
		return err
	}
	items := storageItems{generate.StorageItems{Seed: storageSeed, Sequential: workload.sequential}, workload.valueBytes}
	err = r.loading("items", workload.loaded, func(far *howFar) error {
		return newMixed(items, store, storageSeed, r.dir).load(workload.loaded, storageLoadBatch, far)
	})
	if err != nil {
		return err
	}
	// What the load left to do is not the row's.
	if err := cmp.Or(store.SetDurability(workload.durability), r.drain(store)); err != nil {
		return err
	}
	run := newMixed(items, store, storageSeed, r.dir)
	run.adopt(workload.loaded)
	budget := storageBudget(scale)
	period := budget.period()
	mix := mix{workload.percent, generate.NewZipf(1).Latest, storageScanItems, false}
	err = r.row(workload.name, func() (outcome, error) { return run.run(mix, budget, period) })
	if err := errors.Join(err, r.drain(store)); err != nil {
		return err
	}
	return errors.Join(r.check(run.fullCheck()), store.Close())
}
