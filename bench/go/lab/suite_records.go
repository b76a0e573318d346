package lab

// Suite records; crates/esker-bench/src/suites/records.rs says where it is from. Its building blocks are Esker's alone, as it says
// there; single gets and puts are for every engine.

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"esker.invalid/bench/generate"
)

const (
	recordsSeed         = 19
	recordsCacheBytes   = 4 << 30
	recordsPeriod       = 250 * time.Millisecond
	recordsLatencyGroup = 3
	recordsNotHome      = "a building block of Esker alone; the published figures are in `seed-tables`"
)

var recordsLatencies = []uint64{100, 1_000, 10_000, 100_000}

type recordsSuite struct{}

func (recordsSuite) Name() string { return "records" }

func recordsSizes(scale string) (memtables []int, latencyRecords uint64, latency budget) {
	switch scale {
	case "test":
		return []int{1}, 100, operations(100)
	case "quick":
		return []int{32, 64}, 100_000, budget{5 * time.Second, 100_000}
	}
	return []int{32, 64, 128, 256, 512, 1024, 2048}, 100_000, budget{20 * time.Second, 1_000_000}
}

func (recordsSuite) Rows(scale string) []Row {
	var rows []Row
	block := func(name string, group int) {
		rows = append(rows, Row{Name: name, Unit: "bytes/s", Ops: 1, Group: group})
	}
	for _, size := range []string{"1 KB", "10 KB", "100 KB", "1 MB"} {
		for _, codec := range []string{"plain", "gzip", "snappy", "lz4", "zstd", "plain + sync per record"} {
			block(fmt.Sprintf("record write (%s, %s)", size, codec), 0)
		}
	}
	block("table read", 1)
	memtables, _, _ := recordsSizes(scale)
	for _, mib := range memtables {
		block(fmt.Sprintf("memtable flush (%d MB)", mib), 2)
	}
	for i, shown := range recordsLatencies {
		for _, kind := range []string{"get", "put"} {
			row := seconds(fmt.Sprintf("%s latency (%d records)", kind, shown), 1)
			row.Group = recordsLatencyGroup + i
			rows = append(rows, row)
		}
	}
	return rows
}

func (s recordsSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	if group < recordsLatencyGroup {
		return cannotGroup(s, scale, group, recordsNotHome, r)
	}
	_, most, latency := recordsSizes(scale)
	shown := recordsLatencies[group-recordsLatencyGroup]
	cannotPut := engine.Cannot(AsyncCommits)
	durability := Async
	if cannotPut != "" {
		durability = Sync
	}
	store, err := engine.Open(r.dir, OpenOptions{CacheBytes: recordsCacheBytes, Durability: durability})
	if err != nil {
		return err
	}
	run := newMixed(ycsbRecords{generate.YcsbRecords{Seed: recordsSeed}}, store, recordsSeed, r.dir)
	count := min(shown, most)
	if err := cmp.Or(r.loading("records", count, func(far *howFar) error { return run.load(count, 1000, far) }), r.drain(store)); err != nil {
		return err
	}
	// The values are means of the latencies of single operations.
	row := func(name string, percent [5]uint64, kind string) error {
		return r.row(name, func() (outcome, error) {
			out, err := run.run(mix{percent: percent, ask: generate.Uniform}, latency, recordsPeriod)
			if err == nil {
				out.value, out.ops = out.detail.Latency[kind].Mean, 1
			}
			return out, err
		})
	}
	err = row(fmt.Sprintf("get latency (%d records)", shown), [5]uint64{100, 0, 0, 0, 0}, "read")
	put := fmt.Sprintf("put latency (%d records)", shown)
	if cannotPut != "" {
		err = cmp.Or(err, r.failed(put, Unsupported{cannotPut}))
	} else {
		err = cmp.Or(err, row(put, [5]uint64{0, 0, 100, 0, 0}, "update"), r.drain(store))
	}
	if err != nil {
		return err
	}
	return errors.Join(r.check(run.fullCheck()), store.Close())
}
