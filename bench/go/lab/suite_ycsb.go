package lab

// Suite ycsb; crates/esker-bench/src/suites/ycsb.rs says where it is from, mixed.rs how a mix goes.
//
// MX1. Only the engine's call is between the two looks at the clock; drawing, making values and verifying are not. The rate of
//      the row counts all of it, the same for every engine.
// MX2. The newest version of every record is remembered, so that an old answer is as wrong as none.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
	ycsbItemBytes        = generate.YcsbKeyBytes + generate.YcsbValueBytes
)

var ycsbDurabilities = []struct {
	durability Durability
	feature    Feature
	name       string
}{{Async, AsyncCommits, "async"}, {Sync, SyncCommits, "sync"}}

// Kinds of operations, as they stand in results, and their indexes.
var ycsbKinds = []string{"read", "scan", "update", "insert", "read-modify-write"}

const (
	kindRead = iota
	kindScan
	kindUpdate
	kindInsert
	kindReadModifyWrite
)

type ycsbMix struct {
	name    string
	percent [5]uint64 // of each kind
	ask     generate.Distribution
}

var ycsbRanks = generate.NewZipf(ycsbZipf)

var ycsbMixes = []ycsbMix{
	{"mix", [5]uint64{30, 0, 50, 20, 0}, generate.Uniform},
	{"read-only", [5]uint64{100, 0, 0, 0, 0}, generate.Uniform},
	{"A", [5]uint64{50, 0, 50, 0, 0}, ycsbRanks.Zipfian},
	{"B", [5]uint64{95, 0, 5, 0, 0}, ycsbRanks.Zipfian},
	{"C", [5]uint64{100, 0, 0, 0, 0}, ycsbRanks.Zipfian},
	{"F", [5]uint64{50, 0, 0, 0, 50}, ycsbRanks.Zipfian},
	{"D", [5]uint64{95, 0, 0, 5, 0}, ycsbRanks.Latest},
	{"E", [5]uint64{0, 95, 0, 5, 0}, ycsbRanks.Zipfian},
}

func ycsbCounts(scale string, isSync bool) (records, ops uint64) {
	switch {
	case scale == "test":
		return 60, 100
	case scale == "quick" && isSync:
		return 500, 500
	case scale == "quick":
		return 20_000, 20_000
	case scale == "seed" && isSync:
		return 50_000, 50_000
	}
	return 1_000_000, 1_000_000
}

type ycsbSuite struct{}

func (ycsbSuite) Name() string { return "ycsb" }

func (ycsbSuite) Rows(string) []Row {
	var rows []Row
	for group, d := range ycsbDurabilities {
		rows = append(rows, Row{Name: fmt.Sprintf("load (%s)", d.name), Unit: "ops/s", Ops: 1, Group: group})
		for _, mix := range ycsbMixes {
			rows = append(rows, Row{Name: fmt.Sprintf("%s (%s)", mix.name, d.name), Unit: "ops/s", Ops: 1, Group: group})
		}
	}
	return rows
}

func (s ycsbSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	d := ycsbDurabilities[group]
	if why := engine.Cannot(d.feature); why != "" {
		return cannotGroup(s, scale, group, why, r)
	}
	records, ops := ycsbCounts(scale, d.durability == Sync)
	store, err := engine.Open(r.dir, OpenOptions{
		CacheBytes: ycsbCacheBytes, WriteBufferBytes: ycsbWriteBufferBytes, ValueBytes: generate.YcsbValueBytes,
		Durability: d.durability,
	})
	if err != nil {
		return err
	}
	run := &ycsbRun{records: generate.YcsbRecords{Seed: ycsbSeed}, store: store, rng: generate.NewRng(ycsbSeed), dir: r.dir}
	load := ycsbMix{"load", [5]uint64{0, 0, 0, 100, 0}, generate.Uniform}
	for i, mix := range append([]ycsbMix{load}, ycsbMixes...) {
		count := ops
		if i == 0 {
			count = records
		}
		err := r.row(fmt.Sprintf("%s (%s)", mix.name, d.name), func() (outcome, error) { return run.mix(mix, count) })
		if err := errors.Join(err, r.drain(store)); err != nil {
			return err
		}
	}
	return errors.Join(r.check(run.fullCheck()), store.Close())
}

type ycsbRun struct {
	records  generate.YcsbRecords
	store    Store
	rng      *generate.Rng
	dir      string
	versions []uint32 // MX2
	value    [generate.YcsbValueBytes]byte
	scanned  []ycsbScanned
}

type ycsbScanned struct {
	key   []byte
	probe uint64
}

func (run *ycsbRun) mix(mix ycsbMix, ops uint64) (outcome, error) {
	track := newTrack(ycsbKinds, ycsbPeriod, run.dir)
	commits := uint64(0)
	for track.ops < ops {
		kind := kindInsert
		if len(run.versions) > 0 {
			kind = run.drawKind(mix)
		}
		var from, to time.Time
		var err error
		switch kind {
		case kindRead:
			from, to, err = run.read(mix.ask)
		case kindScan:
			from, to, err = run.scan(mix.ask)
		default:
			commits++
			from, to, err = run.write(kind, mix.ask)
		}
		if err != nil {
			return outcome{}, err
		}
		track.record(kind, from, to)
	}
	return outcome{
		seconds: track.elapsed().Seconds(), ops: track.ops, commits: commits, userWrittenBytes: commits * ycsbItemBytes,
		liveBytes: uint64(len(run.versions)) * ycsbItemBytes, detail: track.finish(),
	}, nil
}

func (run *ycsbRun) drawKind(mix ycsbMix) int {
	point := run.rng.Below(100)
	for kind, percent := range mix.percent {
		if point < percent {
			return kind
		}
		point -= percent
	}
	panic("the parts of a mix sum up to 100")
}

func (run *ycsbRun) drawItem(ask generate.Distribution) uint64 {
	return ask(run.rng, uint64(len(run.versions)))
}

func (run *ycsbRun) expected(i uint64) uint64 {
	return generate.Probe(run.records.Value(i, uint64(run.versions[i]), &run.value))
}

func (run *ycsbRun) read(ask generate.Distribution) (from, to time.Time, err error) {
	i := run.drawItem(ask)
	var key [generate.YcsbKeyBytes]byte
	run.records.Key(i, &key)
	got := uint64(0)
	from = time.Now()
	_, err = run.store.Get(key[:], func(value []byte) { got = generate.Probe(value) })
	to = time.Now()
	return from, to, cmp.Or(err, expect("the value that a get returned", got, run.expected(i)))
}

func (run *ycsbRun) scan(ask generate.Distribution) (from, to time.Time, err error) {
	var first [generate.YcsbKeyBytes]byte
	run.records.Key(run.drawItem(ask), &first)
	limit := 1 + run.rng.Below(ycsbScanItems)
	seen := 0
	from = time.Now()
	_, err = run.store.Range(first[:], limit, func(key, value []byte) {
		if seen == len(run.scanned) {
			run.scanned = append(run.scanned, ycsbScanned{})
		}
		slot := &run.scanned[seen]
		slot.key = append(slot.key[:0], key...)
		slot.probe = generate.Probe(value)
		seen++
	})
	to = time.Now()
	if err != nil {
		return from, to, err
	}
	return from, to, run.checkScan(first[:], run.scanned[:seen])
}

func (run *ycsbRun) checkScan(first []byte, scanned []ycsbScanned) error {
	if len(scanned) == 0 || !slices.Equal(scanned[0].key, first) {
		return wrong{"a scan did not begin with the key that it was to begin with"}
	}
	for n, item := range scanned {
		if n > 0 && slices.Compare(scanned[n-1].key, item.key) >= 0 {
			return wrong{"a scan was not in key order"}
		}
		i, ok := run.records.Item(item.key)
		if !ok || i >= uint64(len(run.versions)) {
			return wrong{"a scan showed a key never written"}
		}
		if err := expect("a value in a scan", item.probe, run.expected(i)); err != nil {
			return err
		}
	}
	return nil
}

func (run *ycsbRun) write(kind int, ask generate.Distribution) (from, to time.Time, err error) {
	i, version, before, got := uint64(len(run.versions)), uint64(0), uint64(0), uint64(0)
	if kind != kindInsert {
		i = run.drawItem(ask)
		version = uint64(run.versions[i]) + 1
	}
	if kind == kindReadModifyWrite {
		before = run.expected(i)
	}
	var key [generate.YcsbKeyBytes]byte
	run.records.Key(i, &key)
	run.records.Value(i, version, &run.value)
	from = time.Now()
	if kind == kindReadModifyWrite {
		if _, err = run.store.Get(key[:], func(value []byte) { got = generate.Probe(value) }); err != nil {
			return from, from, err
		}
	}
	err = run.store.Write(func(w Writer) error { return w.Put(key[:], run.value[:]) })
	to = time.Now()
	if kind == kindInsert {
		run.versions = append(run.versions, 0)
	} else {
		run.versions[i] = uint32(version)
	}
	return from, to, cmp.Or(err, expect("the value read before it was modified", got, before))
}

// fullCheck compares every byte of the store with what must be there.
func (run *ycsbRun) fullCheck() error {
	expected := uint64(0)
	var key [generate.YcsbKeyBytes]byte
	for i, version := range run.versions {
		run.records.Value(uint64(i), uint64(version), &run.value)
		expected += generate.Checksum(run.records.Key(uint64(i), &key), run.value[:])
	}
	return withReader(run.store, func(reader Reader) error { return fullScan(reader, uint64(len(run.versions)), expected) })
}
