package lab

// Suite obigstore; crates/esker-bench/src/suites/obigstore.rs says where it is from, load.go how pairs are written.

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"esker.invalid/bench/generate"
)

const (
	obigSeed        = 29
	obigCacheBytes  = 4 << 30
	obigValueBytes  = 32
	obigLargeBytes  = 20_000
	obigSpotsLog2   = 13
	obigStay        = 0.99999
	obigLargeRate   = 1_000
	obigLimitedRate = 10_000
	obigBacklogMax  = time.Second
	obigRangeKeys   = 512
	obigLookUps     = 20
	obigReaders     = 5
)

const (
	obigLargeGroup = 4 + iota
	obigUniformGroup
	obigReadGroup
)

type obigCounts struct {
	hotspot, sequential, large, uniform, read uint64
	write, reading, period                    time.Duration // how long rows write at most and read, and what a figure over time covers
	limited                                   float64       // pairs a second of the limited row, the same for every engine
}

func obigCountsOf(scale string) obigCounts {
	const forever = math.MaxUint32 * time.Second
	switch scale {
	case "test":
		return obigCounts{2_000, 2_000, 20, 2_000, 2_000, forever, forever, 100 * time.Millisecond, obigLimitedRate}
	case "quick":
		return obigCounts{200_000, 200_000, 2_000, 500_000, 200_000, 2 * time.Second, 2 * time.Second, 100 * time.Millisecond, obigLimitedRate}
	case "seed":
		return obigCounts{100_000_000, 50_000_000, 200_000, 100_000_000, 10_000_000, 20 * time.Second, 10 * time.Second, time.Second, obigLimitedRate}
	}
	return obigCounts{1_000_000_000, 200_000_000, 20_000_000, 1_000_000_000, 1_000_000_000, forever, time.Minute, 5 * time.Second, obigLimitedRate}
}

func obigWorkingSets(scale string) []uint64 {
	keys := obigCountsOf(scale).read
	return []uint64{max(keys/1000, 1), max(keys/100, 1), max(keys/10, 1), keys}
}

type obigstoreSuite struct{}

func (obigstoreSuite) Name() string { return "obigstore" }

func (obigstoreSuite) Rows(scale string) []Row {
	p99 := func(name string, group int) Row {
		row := seconds(name, 1)
		row.Group = group
		return row
	}
	rows := []Row{
		rate("hotspot writes (fsync'ed)", 0),
		rate("hotspot writes (no-fsync)", 1),
		rate("sequential inserts (fsync'ed)", 2),
		rate("sequential inserts (no-fsync)", 3),
		p99("large payload", obigLargeGroup),
		rate("uniform random", obigUniformGroup),
		rate("uniform random, burst", obigUniformGroup),
		p99("uniform random, limited rate", obigUniformGroup),
		rate("range reads", obigReadGroup),
	}
	for _, keys := range obigWorkingSets(scale) {
		rows = append(rows, rate(obigSetRow(keys), obigReadGroup))
	}
	return rows
}

// obigWriters is how many requests write at once.
func obigWriters(group int) uint64 {
	switch group {
	case 0, 1, obigUniformGroup:
		return 64
	case 2, 3:
		return 200
	case obigLargeGroup:
		return 50
	}
	return 1
}

// obigAscending says whether the keys of a group come in their order; where several write at once, nearly.
func obigAscending(group int) bool {
	return group == 2 || group == 3 || group == obigLargeGroup || group == obigReadGroup
}

func obigSetRow(keys uint64) string {
	return fmt.Sprintf("random reads (working set of %d keys)", keys)
}

func (s obigstoreSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	durability := Async
	switch {
	case group == 0 || group == 2:
		durability = Sync
	case group == obigReadGroup && engine.Cannot(Async.feature()) != "":
		durability = NoSync
	}
	if why := engine.Cannot(durability.feature()); why != "" {
		return cannotGroup(s, scale, group, why, r)
	}
	valueBytes := obigValueBytes
	if group == obigLargeGroup {
		valueBytes = obigLargeBytes
	}
	store, err := engine.Open(r.dir, OpenOptions{
		CacheBytes: obigCacheBytes, ValueBytes: valueBytes, Durability: durability, ConcurrentWrites: obigWriters(group),
		AscendingKeys: obigAscending(group),
	})
	if err != nil {
		return err
	}
	run := &obigRun{store: store, counts: obigCountsOf(scale), scale: scale, r: r}
	switch group {
	case 0, 1:
		err = run.hotspots(s.Rows(scale)[group].Name)
	case 2, 3:
		err = run.sequential(s.Rows(scale)[group].Name)
	case obigLargeGroup:
		err = run.large()
	case obigUniformGroup:
		err = run.uniform()
	default:
		err = run.reads()
	}
	return cmp.Or(err, store.Close())
}

type obigRun struct {
	store  Store
	counts obigCounts
	scale  string
	r      *Recorder
}

func (run *obigRun) load(concurrency, multi uint64) load {
	return load{concurrency: concurrency, multi: multi, time: run.counts.write, period: run.counts.period}
}

func (run *obigRun) write(source *source, load load) (outcome, error) {
	done, err := drive(run.store, source, load, run.r.dir)
	if err != nil {
		return outcome{}, err
	}
	out := outcome{
		seconds: done.seconds, ops: done.pairs, commits: done.commits, userWrittenBytes: done.bytes, detail: done.detail,
	}
	if load.rate > 0 {
		if done.backlog > obigBacklogMax {
			got := float64(done.pairs) / done.seconds
			return outcome{}, Unsupported{fmt.Sprintf("overloaded: %.0f of %.0f pairs a second", got, load.rate)}
		}
		out.value, out.ops = done.detail.Latency["write"].P99, 1
	}
	return out, nil
}

// verify reads everything: each of the new keys that a source gave is there with its value, and nothing else.
func (run *obigRun) verify(keys iter.Seq[generate.ObigKey], valueBytes int) error {
	value := make([]byte, valueBytes)
	count, expected := uint64(0), uint64(0)
	for key := range keys {
		expected += generate.Checksum(key[:], generate.ObigValue(&key, value))
		count++
	}
	return withReader(run.store, func(reader Reader) error {
		length, err := reader.Len()
		if err := cmp.Or(err, expect("number of items by len()", length, count)); err != nil {
			return err
		}
		return fullScan(reader, count, expected)
	})
}

// keysBelow are those of the numbers below n.
func keysBelow(n uint64, key func(i uint64) generate.ObigKey) iter.Seq[generate.ObigKey] {
	return func(yield func(generate.ObigKey) bool) {
		for i := range n {
			if !yield(key(i)) {
				return
			}
		}
	}
}

func (run *obigRun) hotspots(name string) error {
	hotspots := generate.NewHotspots(obigSeed, obigStay, obigSpotsLog2)
	next := func(uint64) (generate.ObigKey, bool) { return hotspots.NextKey() }
	source := &source{next: next, valueBytes: obigValueBytes, left: run.counts.hotspot}
	written := uint64(0)
	err := run.r.row(name, func() (outcome, error) {
		out, err := run.write(source, run.load(64, 20))
		written = out.ops
		return out, err
	})
	if err := cmp.Or(err, run.r.drain(run.store)); err != nil {
		return err
	}
	again := generate.NewHotspots(obigSeed, obigStay, obigSpotsLog2)
	newKeys := func(yield func(generate.ObigKey) bool) {
		for range written {
			if key, isNew := again.NextKey(); isNew && !yield(key) {
				return
			}
		}
	}
	return run.r.check(run.verify(newKeys, obigValueBytes))
}

func (run *obigRun) sequential(name string) error {
	source := sequentialSource(obigValueBytes, run.counts.sequential)
	err := run.r.row(name, func() (outcome, error) { return run.write(source, run.load(200, 16)) })
	if err := cmp.Or(err, run.r.drain(run.store)); err != nil {
		return err
	}
	return run.r.check(run.verify(keysBelow(source.given, generate.ObigSequential), obigValueBytes))
}

func (run *obigRun) large() error {
	source := sequentialSource(obigLargeBytes, run.counts.large)
	load := run.load(50, 1)
	load.rate = obigLargeRate
	err := run.r.row("large payload", func() (outcome, error) { return run.write(source, load) })
	if err := cmp.Or(err, run.r.drain(run.store)); err != nil {
		return err
	}
	return run.r.check(run.verify(keysBelow(source.given, generate.ObigSequential), obigLargeBytes))
}

func (run *obigRun) uniform() error {
	random := func(i uint64) generate.ObigKey { return generate.ObigRandom(obigSeed, i) }
	next := func(given uint64) (generate.ObigKey, bool) { return random(given), true }
	source := &source{next: next, valueBytes: obigValueBytes}
	step := func(name string, pairs uint64, write func() (outcome, error)) error {
		source.left = pairs
		err := run.r.row(name, write)
		return cmp.Or(err, run.r.drain(run.store))
	}
	err := step("uniform random", run.counts.uniform, func() (outcome, error) { return run.write(source, run.load(64, 20)) })
	if err != nil {
		return err
	}
	err = step("uniform random, burst", run.counts.uniform/10, func() (outcome, error) {
		items := source.given
		out, err := run.write(source, run.load(64, 20))
		return out.on(items), err
	})
	if err != nil {
		return err
	}
	err = step("uniform random, limited rate", run.counts.uniform/100, func() (outcome, error) {
		items, limited := source.given, run.load(50, 2)
		limited.rate = run.counts.limited
		out, err := run.write(source, limited)
		if err == nil {
			out.detail.figure("offered ops/s", limited.rate)
		}
		return out.on(items), err
	})
	if err != nil {
		return err
	}
	return run.r.check(run.verify(keysBelow(source.given, random), obigValueBytes))
}

func (run *obigRun) reads() error {
	keys := run.counts.read
	untimed := load{concurrency: 1, multi: 1000, time: math.MaxInt64, period: run.counts.period}
	err := run.r.loading("pairs", keys, func(*howFar) error {
		_, err := drive(run.store, sequentialSource(obigValueBytes, keys), untimed, run.r.dir)
		return err
	})
	if err != nil {
		return err
	}
	err = run.r.drain(run.store)
	err = cmp.Or(err, run.r.row("range reads", func() (outcome, error) {
		return run.requests(1, obigRangeKeys, func(rng *generate.Rng) (from, to time.Time, err error) { return run.oneRange(rng, keys) })
	}))
	for _, set := range obigWorkingSets(run.scale) {
		err = cmp.Or(err, run.r.row(obigSetRow(set), func() (outcome, error) {
			return run.requests(obigReaders, obigLookUps, func(rng *generate.Rng) (from, to time.Time, err error) { return run.lookUps(rng, set) })
		}))
	}
	if err != nil {
		return err
	}
	return run.r.check(run.verify(keysBelow(keys, generate.ObigSequential), obigValueBytes))
}

// addPair makes one number of all pairs of a range, in their order.
func addPair(sum uint64, key, value []byte) uint64 {
	return (bits.RotateLeft64(sum, 1) + generate.Probe(key)) ^ generate.Probe(value)
}

type request func(rng *generate.Rng) (from, to time.Time, err error)

// requests runs requests on so many threads for the row's time; each counts as keys operations.
func (run *obigRun) requests(threads, keys uint64, request request) (outcome, error) {
	var left atomic.Int64
	left.Store(math.MaxInt64)
	if run.scale == "test" {
		left.Store(20)
	}
	var tracking sync.Mutex
	failures := make([]error, threads)
	track := newTrack([]string{"request"}, run.counts.period, run.r.dir)
	defer track.abandon()
	start := time.Now()
	var readers sync.WaitGroup
	for thread := range threads {
		readers.Go(func() {
			rng := generate.NewRng(obigSeed + thread)
			for time.Since(start) < run.counts.reading && left.Add(-1) >= 0 {
				from, to, err := request(rng)
				if err != nil {
					failures[thread] = err
					return
				}
				tracking.Lock()
				track.record(0, from, to, keys)
				tracking.Unlock()
			}
		})
	}
	readers.Wait()
	took := time.Since(start).Seconds()
	return outcome{seconds: took, ops: track.ops, detail: track.finish("closed")}, errors.Join(failures...)
}

func (run *obigRun) oneRange(rng *generate.Rng, keys uint64) (from, to time.Time, err error) {
	first := rng.Below(max(keys-min(keys, obigRangeKeys), 1))
	key := generate.ObigSequential(first)
	sum := uint64(0)
	from = time.Now()
	seen, err := run.store.Range(key[:], obigRangeKeys, func(key, value []byte) { sum = addPair(sum, key, value) })
	to = time.Now()
	if err != nil {
		return from, to, err
	}
	var value [obigValueBytes]byte
	expected := uint64(0)
	for i := first; i < first+seen; i++ {
		key := generate.ObigSequential(i)
		expected = addPair(expected, key[:], generate.ObigValue(&key, value[:]))
	}
	return from, to, cmp.Or(expect("keys in a range", seen, min(obigRangeKeys, keys)), expect("sum of a range", sum, expected))
}

// lookUps is one request: one snapshot, several look-ups.
func (run *obigRun) lookUps(rng *generate.Rng, set uint64) (from, to time.Time, err error) {
	var keys [obigLookUps]generate.ObigKey
	var value [obigValueBytes]byte
	expected, sum := uint64(0), uint64(0)
	for i := range keys {
		keys[i] = generate.ObigSequential(rng.Below(set))
		expected += generate.Probe(generate.ObigValue(&keys[i], value[:]))
	}
	from = time.Now()
	err = withReader(run.store, func(reader Reader) error {
		for i := range keys {
			if _, err := reader.Get(keys[i][:], func(value []byte) { sum += generate.Probe(value) }); err != nil {
				return err
			}
		}
		return nil
	})
	to = time.Now()
	return from, to, cmp.Or(err, expect("sum of the values", sum, expected))
}
