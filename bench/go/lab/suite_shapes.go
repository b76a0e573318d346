package lab

// Suite shapes: keys and values of other forms than those of the sources' benchmarks; crates/esker-bench/src/suites/shapes.rs says what each row
// does.
//
// SH1. Every value that is read is in a sum, which is held against the generator. At the end every byte is compared.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

const (
	shapesSeed       = 43
	shapesCacheBytes = 4 << 30
	shapesLoadBatch  = 1000
	shapesRangeItems = 10
	// One key in 4 of those that are asked for begins a range.
	shapesItemsPerRange = 4
	shapesPasses        = 3
)

var (
	shapesPlaces = []string{"in memtable", "in tables"}
	shapesReads  = []string{"get", "range of 10", "scan"}
)

// shapesItems is the number of items of a shape: the scale's number, or fewer where they would be more bytes than the scale allows.
func shapesItems(scale string, shape generate.Shape) uint64 {
	items, most := uint64(4_000_000), uint64(1<<30)
	switch scale {
	case "test":
		return 120
	case "quick":
		items, most = 200_000, 64<<20
	case "seed":
		items, most = 1_000_000, 512<<20
	}
	return min(items, most/(shape.KeyBytes+uint64(shape.ValueBytes)))
}

type shapesSuite struct{}

func (shapesSuite) Name() string { return "shapes" }

func shapesRow(shape generate.Shape, read, place string) string {
	return fmt.Sprintf("%s, %s, %s", shape.Name, read, place)
}

func (shapesSuite) Rows(scale string) (rows []Row) {
	for group, shape := range generate.Shapes {
		items := shapesItems(scale, shape)
		ops := []uint64{items, (items + shapesItemsPerRange - 1) / shapesItemsPerRange, items}
		for _, place := range shapesPlaces {
			for kind, read := range shapesReads {
				rows = append(rows, Row{Name: shapesRow(shape, read, place), Unit: "s", Ops: ops[kind], Group: group})
			}
		}
		rows = append(rows, Row{Name: shape.Name + ", size", Unit: "bytes", Ops: 1, Group: group})
	}
	return rows
}

func (shapesSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	shape := generate.Shapes[group]
	run := newShapesRun(shape, shapesItems(scale, shape))
	durability := Sync // the load is no row
	for _, mode := range []Durability{Async, NoSync} {
		if engine.Cannot(mode.feature()) == "" {
			durability = mode
		}
	}
	store, err := engine.Open(r.dir, OpenOptions{
		CacheBytes: shapesCacheBytes, ValueBytes: shape.ValueBytes, Durability: durability, AscendingKeys: group == generate.Sequential,
		WriteBufferBytes: min(max(4*int64(run.bytes()), 64<<20), shapesCacheBytes/2),
	})
	if err != nil {
		return err
	}
	return errors.Join(run.rows(engine, store, r), store.Close())
}

func (run *shapesRun) rows(engine Engine, store Store, r *Recorder) error {
	load := func(far *howFar) error { return run.load(store, far) }
	if err := cmp.Or(r.loading("items", run.count, load), r.drain(store)); err != nil {
		return err
	}
	if err := run.reads(store, shapesPlaces[0], "", r); err != nil {
		return err
	}
	note := "not compacted: it has no compaction"
	if engine.Cannot(Compaction) == "" {
		note = ""
		if err := cmp.Or(store.Compact(), store.Reopen()); err != nil {
			return err
		}
	}
	err := cmp.Or(r.settle(store), run.reads(store, shapesPlaces[1], note, r), r.drain(store))
	if err := cmp.Or(err, r.sizeRow(run.shape.Name+", size", run.bytes())); err != nil {
		return err
	}
	return withReader(store, func(reader Reader) error { return r.check(fullScan(reader, run.count, run.checksum())) })
}

// shapesRun has the items of one shape, and what reads of them must find.
type shapesRun struct {
	shape generate.Shape
	count uint64
	// All keys one behind the other, in the order in which they are asked for, and where each ends.
	asked []byte
	ends  []int
	// For each kind of reads, the sum of what it must find.
	expected [3]uint64
}

// shapesSum adds an item to a sum. A wrong item changes the sum wherever it comes.
func shapesSum(acc uint64, key []byte, value uint64) uint64 {
	return bits.RotateLeft64(acc, 1) ^ generate.Probe(key) ^ value
}

func newShapesRun(shape generate.Shape, count uint64) *shapesRun {
	run := &shapesRun{shape: shape, count: count}
	order, value := generate.NewOrder(count, 0), make([]byte, shape.ValueBytes)
	values, sorted := make([]uint64, count), make([]int, count)
	for n := range values {
		i := order.Take()
		run.asked = shape.Key(shapesSeed, i, run.asked)
		run.ends = append(run.ends, len(run.asked))
		values[n] = generate.Probe(shape.Value(shapesSeed, i, value))
		run.expected[0] = bits.RotateLeft64(run.expected[0], 1) ^ values[n]
		sorted[n] = n
	}
	slices.SortFunc(sorted, func(a, b int) int { return bytes.Compare(run.key(a), run.key(b)) })
	rankOf := make([]int, count)
	for rank, n := range sorted {
		rankOf[n] = rank
		run.expected[2] = shapesSum(run.expected[2], run.key(n), values[n])
	}
	for n := 0; n < len(values); n += shapesItemsPerRange {
		rank := rankOf[n]
		for _, n := range sorted[rank:min(rank+shapesRangeItems, len(sorted))] {
			run.expected[1] = shapesSum(run.expected[1], run.key(n), values[n])
		}
	}
	return run
}

// key is the nth key that is asked for, from 0.
func (run *shapesRun) key(n int) []byte {
	if n == 0 {
		return run.asked[:run.ends[0]]
	}
	return run.asked[run.ends[n-1]:run.ends[n]]
}

// bytes of all keys and values.
func (run *shapesRun) bytes() uint64 {
	return uint64(len(run.asked)) + run.count*uint64(run.shape.ValueBytes)
}

// load puts all items, item 0 first.
func (run *shapesRun) load(store Store, far *howFar) error {
	key, value := []byte(nil), make([]byte, run.shape.ValueBytes)
	for first := uint64(0); first < run.count; first += shapesLoadBatch {
		end := min(first+shapesLoadBatch, run.count)
		if err := run.put(store, first, end, key, value); err != nil {
			return err
		}
		if err := far.at(end, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// put puts items first to end, in two transactions where the engine takes fewer in one.
func (run *shapesRun) put(store Store, first, end uint64, key, value []byte) error {
	err := store.Write(func(w Writer) error {
		for i := first; i < end; i++ {
			key = run.shape.Key(shapesSeed, i, key[:0])
			if err := w.Put(key, run.shape.Value(shapesSeed, i, value)); err != nil {
				return err
			}
		}
		return nil
	})
	if middle := (first + end) / 2; errors.Is(err, ErrTooLarge) && middle > first {
		return cmp.Or(run.put(store, first, middle, key, value), run.put(store, middle, end, key, value))
	}
	return err
}

func (run *shapesRun) reads(store Store, place, note string, r *Recorder) error {
	return withReader(store, func(reader Reader) error {
		for kind, read := range shapesReads {
			work := []func(Reader) (uint64, error){run.gets, run.ranges, run.scan}[kind]
			err := r.rowOfPasses(shapesRow(run.shape, read, place), shapesPasses, func() (outcome, error) {
				got, err := work(reader)
				out := outcome{note: note, liveBytes: run.bytes()}
				return out, cmp.Or(err, expect(fmt.Sprintf("sum of what a %s found", read), got, run.expected[kind]))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (run *shapesRun) gets(reader Reader) (uint64, error) {
	sum, got := uint64(0), uint64(0)
	visit := func(value []byte) { got = generate.Probe(value) }
	for n := range run.ends {
		got = 0
		if _, err := reader.Get(run.key(n), visit); err != nil {
			return 0, err
		}
		sum = bits.RotateLeft64(sum, 1) ^ got
	}
	return sum, nil
}

func (run *shapesRun) ranges(reader Reader) (uint64, error) {
	sum := uint64(0)
	visit := func(key, value []byte) { sum = shapesSum(sum, key, generate.Probe(value)) }
	for n := 0; n < len(run.ends); n += shapesItemsPerRange {
		if _, err := reader.Range(run.key(n), shapesRangeItems, visit); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

func (run *shapesRun) scan(reader Reader) (uint64, error) {
	sum := uint64(0)
	_, err := reader.Range(nil, ^uint64(0), func(key, value []byte) { sum = shapesSum(sum, key, generate.Probe(value)) })
	return sum, err
}

// checksum is the sum of the checksums of all items, as a full scan must find it.
func (run *shapesRun) checksum() uint64 {
	sum, key, value := uint64(0), []byte(nil), make([]byte, run.shape.ValueBytes)
	for i := range run.count {
		key = run.shape.Key(shapesSeed, i, key[:0])
		sum += generate.Checksum(key, run.shape.Value(shapesSeed, i, value))
	}
	return sum
}
