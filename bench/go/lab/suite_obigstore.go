package lab

// Suite obigstore; crates/esker-bench/src/suites/obigstore.rs says where it is from, obigstore/reads.rs what the rows of reads count, load.go how pairs
// are written.
//
// OR1. No answer is verified while the clock of a row of reads runs.
// OR2. The value of the ranges is keys over the time within calls, that of the look-ups is over the time on the wall.

import (
	"cmp"
	"encoding/binary"
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

// obigTestRequests are those of a row of reads in a test, however slow the machine is: both programs are held against each other.
const obigTestRequests = 20

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
		return obigCounts{2_000, 2_000, 100, 2_000, 2_000, forever, forever, 100 * time.Millisecond, obigLimitedRate}
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
	err = cmp.Or(err, run.r.row("range reads", func() (outcome, error) { return run.ranges(keys) }))
	for _, set := range obigWorkingSets(run.scale) {
		err = cmp.Or(err, run.r.row(obigSetRow(set), func() (outcome, error) { return run.randomReads(set) }))
	}
	if err != nil {
		return err
	}
	return run.r.check(run.verify(keysBelow(keys, generate.ObigSequential), obigValueBytes))
}

// ranges reads ranges of keys and values, on one thread.
func (run *obigRun) ranges(keys uint64) (outcome, error) {
	request := func(rng *generate.Rng) (obigAnswer, error) { return run.oneRange(rng, keys) }
	return run.requests(1, obigRangeKeys, request, func(rng *generate.Rng) uint64 { return rangeExpected(rng, keys) })
}

// randomReads looks up keys among the first of the set, on several threads.
func (run *obigRun) randomReads(set uint64) (outcome, error) {
	request := func(rng *generate.Rng) (obigAnswer, error) { return run.lookUps(rng, set) }
	return run.requests(obigReaders, obigLookUps, request, func(rng *generate.Rng) uint64 { return lookUpsExpected(rng, set) })
}

// obigAnswer is what a request was answered, and when.
type obigAnswer struct {
	from, to time.Time
	sum      uint64
}

// obigAnswers are what a thread was answered by all its requests, and the time within them.
type obigAnswers struct {
	requests, sum uint64
	busy          time.Duration
}

func (a *obigAnswers) add(busy time.Duration, sum uint64) {
	a.requests++
	a.sum = folded(a.sum, sum)
	a.busy += busy
}

// folded makes one number of all answers to a thread, in their order; not by adding, in which wrong answers that are all wrong by the same may cancel.
func folded(sum, answer uint64) uint64 {
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], sum)
	binary.LittleEndian.PutUint64(both[8:], answer)
	return generate.Checksum(both[:8], both[8:])
}

// addPair makes one number of all pairs of a range, in their order.
func addPair(sum uint64, key, value []byte) uint64 {
	return (bits.RotateLeft64(sum, 1) + generate.Probe(key)) ^ generate.Probe(value)
}

type request func(rng *generate.Rng) (obigAnswer, error)

// requests runs requests on this number of threads for the row's time; each counts as keys operations. expected draws what request draws, and says what sum
// the answer must have (OR1).
func (run *obigRun) requests(threads, keys uint64, request request, expected func(*generate.Rng) uint64) (outcome, error) {
	var left atomic.Int64
	left.Store(math.MaxInt64)
	if run.scale == "test" {
		left.Store(obigTestRequests)
	}
	var tracking sync.Mutex
	failures, answers := make([]error, threads), make([]obigAnswers, threads)
	track := newTrack([]string{"request"}, run.counts.period, run.r.dir)
	defer track.abandon()
	start := time.Now()
	var readers sync.WaitGroup
	for thread := range threads {
		readers.Go(func() {
			rng := generate.NewRng(obigSeed + thread)
			var all obigAnswers
			for time.Since(start) < run.counts.reading && left.Add(-1) >= 0 {
				answer, err := request(rng)
				if err != nil {
					failures[thread] = err
					return
				}
				all.add(answer.to.Sub(answer.from), answer.sum)
				tracking.Lock()
				track.record(0, answer.from, answer.to, keys)
				tracking.Unlock()
			}
			answers[thread] = all
		})
	}
	readers.Wait()
	wall := time.Since(start)
	detail := track.finish("closed")
	if err := cmp.Or(errors.Join(failures...), verifyAnswers(answers, expected)); err != nil {
		return outcome{}, err
	}
	counted := wall
	if threads == 1 { // OR2
		counted = answers[0].busy
		detail.figure("wall ops/s", float64(track.ops)/wall.Seconds())
	}
	return outcome{seconds: counted.Seconds(), ops: track.ops, detail: detail}, nil
}

// verifyAnswers draws the requests of each thread again (OR1).
func verifyAnswers(answers []obigAnswers, expected func(*generate.Rng) uint64) error {
	for thread, all := range answers {
		rng, sum := generate.NewRng(obigSeed+uint64(thread)), uint64(0)
		for range all.requests {
			sum = folded(sum, expected(rng))
		}
		if err := expect("sum of all answers to a thread", all.sum, sum); err != nil {
			return err
		}
	}
	return nil
}

func (run *obigRun) oneRange(rng *generate.Rng, keys uint64) (obigAnswer, error) {
	first, sum := generate.ObigSequential(firstOfRange(rng, keys)), uint64(0)
	visit := func(key, value []byte) { sum = addPair(sum, key, value) }
	from := time.Now()
	seen, err := run.store.Range(first[:], obigRangeKeys, visit)
	to := time.Now()
	return obigAnswer{from, to, sum}, cmp.Or(err, expect("keys in a range", seen, min(obigRangeKeys, keys)))
}

// lookUps is one request: one snapshot, several look-ups.
func (run *obigRun) lookUps(rng *generate.Rng, set uint64) (obigAnswer, error) {
	keys, sum := lookedUp(rng, set), uint64(0)
	visit := func(value []byte) { sum += generate.Probe(value) }
	read := func(reader Reader) error {
		for i := range keys {
			if _, err := reader.Get(keys[i][:], visit); err != nil {
				return err
			}
		}
		return nil
	}
	from := time.Now()
	err := withReader(run.store, read)
	to := time.Now()
	return obigAnswer{from, to, sum}, err
}

func rangeExpected(rng *generate.Rng, keys uint64) (sum uint64) {
	var value [obigValueBytes]byte
	first := firstOfRange(rng, keys)
	for i := first; i < first+min(obigRangeKeys, keys); i++ {
		key := generate.ObigSequential(i)
		sum = addPair(sum, key[:], generate.ObigValue(&key, value[:]))
	}
	return sum
}

func lookUpsExpected(rng *generate.Rng, set uint64) (sum uint64) {
	var value [obigValueBytes]byte
	for _, key := range lookedUp(rng, set) {
		sum += generate.Probe(generate.ObigValue(&key, value[:]))
	}
	return sum
}

// firstOfRange draws where a range begins.
func firstOfRange(rng *generate.Rng, keys uint64) uint64 {
	return rng.Below(max(keys-min(keys, obigRangeKeys), 1))
}

// lookedUp draws the keys of a request of look-ups.
func lookedUp(rng *generate.Rng, set uint64) (keys [obigLookUps]generate.ObigKey) {
	for i := range keys {
		keys[i] = generate.ObigSequential(rng.Below(set))
	}
	return keys
}
