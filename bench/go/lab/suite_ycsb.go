package lab

// Suite ycsb; crates/esker-bench/src/suites/ycsb.rs says where it is from, mixed.go how a mix goes.

import (
	"errors"
	"fmt"
	"math"
	"time"

	"esker.invalid/bench/generate"
)

const (
	ycsbSeed             = 11
	ycsbCacheBytes       = 512 << 20
	ycsbWriteBufferBytes = 128_000_000
	ycsbZipf             = 0.99
	ycsbPeriod           = 250 * time.Millisecond
	ycsbScanItems        = 100
	ycsbSeedTime         = 10 * time.Second // what a mix takes at scale seed
	ycsbTestOps          = 100
)

var ycsbDurabilities = []struct {
	durability Durability
	feature    Feature
	name       string
}{{Async, AsyncCommits, "async"}, {Sync, SyncCommits, "sync"}}

var ycsbRanks = generate.NewZipf(ycsbZipf)

type ycsbAsk int

const (
	ycsbUniform ycsbAsk = iota
	ycsbZipfian
	ycsbLatest
)

// distribution is that of a mix with these percentages, in a database that has records records when the mix begins; YC2 of the Rust side.
func (ask ycsbAsk) distribution(percent [5]uint64, records uint64) generate.Distribution {
	switch ask {
	case ycsbZipfian:
		if percent[kindInsert] > 0 {
			records += records / 4
		}
		return ycsbRanks.Zipfian(records)
	case ycsbLatest:
		return ycsbRanks.Latest
	}
	return generate.Uniform
}

var ycsbMixes = []struct {
	name    string
	percent [5]uint64
	ask     ycsbAsk
}{
	{"mix", [5]uint64{30, 0, 50, 20, 0}, ycsbUniform},
	{"read-only", [5]uint64{100, 0, 0, 0, 0}, ycsbUniform},
	{"A", [5]uint64{50, 0, 50, 0, 0}, ycsbZipfian},
	{"B", [5]uint64{95, 0, 5, 0, 0}, ycsbZipfian},
	{"C", [5]uint64{100, 0, 0, 0, 0}, ycsbZipfian},
	{"F", [5]uint64{50, 0, 0, 0, 50}, ycsbZipfian},
	{"D", [5]uint64{95, 0, 0, 5, 0}, ycsbLatest},
	{"E", [5]uint64{0, 95, 0, 5, 0}, ycsbZipfian},
}

// ycsbCount is that of the records of the load.
func ycsbCount(scale string, isSync bool) uint64 {
	switch {
	case scale == "test":
		return 60
	case scale == "quick" && isSync:
		return 500
	case scale == "quick":
		return 20_000
	case scale == "seed" && isSync:
		return 50_000
	}
	return 1_000_000
}

// ycsbBudget says when a mix ends; YC1 of the Rust side.
func ycsbBudget(scale string, isSync bool) budget {
	switch scale {
	case "test":
		return operations(ycsbTestOps)
	case "seed":
		return budget{ycsbSeedTime, math.MaxUint64}
	}
	return operations(ycsbCount(scale, isSync))
}

// ycsbRecords are the generator's, as a mix wants them.
type ycsbRecords struct{ generate.YcsbRecords }

func (y ycsbRecords) key(i uint64, key []byte) []byte {
	return y.Key(i, (*[generate.YcsbKeyBytes]byte)(key))
}
func (y ycsbRecords) item(key []byte) (uint64, bool) { return y.Item(key) }
func (y ycsbRecords) lengths() (int, int)            { return generate.YcsbKeyBytes, generate.YcsbValueBytes }
func (y ycsbRecords) fill(i, version uint64, value []byte) {
	y.Value(i, version, (*[generate.YcsbValueBytes]byte)(value))
}

type ycsbSuite struct{}

func (ycsbSuite) Name() string { return "ycsb" }

func (ycsbSuite) Rows(string) []Row {
	var rows []Row
	for group, d := range ycsbDurabilities {
		rows = append(rows, rate(fmt.Sprintf("load (%s)", d.name), group))
		for _, mix := range ycsbMixes {
			rows = append(rows, rate(fmt.Sprintf("%s (%s)", mix.name, d.name), group))
		}
	}
	return rows
}

func (s ycsbSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	d := ycsbDurabilities[group]
	if why := engine.Cannot(d.feature); why != "" {
		return cannotGroup(s, scale, group, why, r)
	}
	store, err := engine.Open(r.dir, OpenOptions{
		CacheBytes: ycsbCacheBytes, WriteBufferBytes: ycsbWriteBufferBytes, ValueBytes: generate.YcsbValueBytes,
		Durability: d.durability,
	})
	if err != nil {
		return err
	}
	run := newMixed(ycsbRecords{generate.YcsbRecords{Seed: ycsbSeed}}, store, ycsbSeed, r.dir)
	row := func(name string, mix mix, budget budget, far *howFar) error {
		name = fmt.Sprintf("%s (%s)", name, d.name)
		err := r.row(name, func() (outcome, error) { return run.runTelling(mix, budget, ycsbPeriod, far) })
		return errors.Join(err, r.drain(store))
	}
	records := ycsbCount(scale, d.durability == Sync)
	if err := row("load", insertsOnly, operations(records), r.howFar("records", records)); err != nil {
		return err
	}
	budget := ycsbBudget(scale, d.durability == Sync)
	for _, m := range ycsbMixes {
		if err := row(m.name, mix{m.percent, m.ask.distribution(m.percent, run.items()), ycsbScanItems, true}, budget, nil); err != nil {
			return err
		}
	}
	return errors.Join(r.check(run.fullCheck()), store.Close())
}
