package lab

// Suite redb; crates/esker-bench/src/suites/redb.rs says where it is from.
//
// B1. Item numbers are handed out in order of writing; all items below counts.items() exist until the removals.
// B2. Every timed read is summed up and compared; a difference fails the row.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"esker.invalid/bench/generate"
)

const (
	redbSeed       = 3
	redbReadPasses = 2
	redbScanItems  = 10
	redbCacheBytes = 4 << 30
	redbPeriod     = 100 * time.Millisecond
	redbItemBytes  = generate.ItemKeyBytes + generate.ItemValueBytes
)

var redbThreads = []struct {
	name    string
	threads uint64
}{
	{"random reads (4 threads)", 4},
	{"random reads (8 threads)", 8},
	{"random reads (16 threads)", 16},
	{"random reads (32 threads)", 32},
}

type redbCounts struct {
	bulk, individual, batches, batch, nosync, reads, scans uint64
}

func redbCountsOf(scale string) redbCounts {
	c := redbCounts{1_000_000, 1_000, 100, 1_000, 50_000, 1_000_000, 500_000}
	switch scale {
	case "quick":
		c.bulk, c.reads, c.scans = 250_000, 500_000, 250_000
	case "full":
		c.bulk = 5_000_000
	case "test":
		c = redbCounts{2_000, 20, 5, 100, 100, 3_000, 500}
	}
	return c
}

func (c redbCounts) items() uint64    { return c.bulk + c.individual + c.batches*c.batch + c.nosync }
func (c redbCounts) removals() uint64 { return c.items() / 2 }

type redbSuite struct{}

func (redbSuite) Name() string { return "redb" }

func (redbSuite) Rows(scale string) []Row {
	c := redbCountsOf(scale)
	rows := []Row{
		seconds("bulk load", c.bulk).withCommits(1),
		seconds("individual writes", c.individual).withCommits(c.individual),
		seconds("batch writes", c.batches*c.batch).withCommits(c.batches),
		seconds("nosync writes", c.nosync).withCommits(c.nosync),
		seconds("len()", 1),
		seconds("random reads", c.reads),
		seconds("random range reads", c.scans),
	}
	for _, t := range redbThreads {
		rows = append(rows, seconds(t.name, c.items()))
	}
	return append(rows,
		seconds("bulk removals", c.removals()).withCommits(1),
		size("size pre-compact"),
		seconds("compaction", 1),
		size("size after bench"))
}

func (s redbSuite) Run(engine Engine, scale string, _ int, r *Recorder) error {
	store, err := engine.Open(r.dir, OpenOptions{CacheBytes: redbCacheBytes, ValueBytes: generate.ItemValueBytes})
	if err != nil {
		return err
	}
	run := &redbRun{generate.Items{Seed: redbSeed}, redbCountsOf(scale), engine, store, 0}
	for _, step := range []func(*Recorder) error{run.writes, run.reads, run.threads, run.removalsAndCompaction} {
		if err := step(r); err != nil {
			return err
		}
	}
	return store.Close()
}

type redbRun struct {
	items  generate.Items
	c      redbCounts
	engine Engine
	store  Store
	next   uint64 // B1
}

func (run *redbRun) writes(r *Recorder) error {
	c := run.c
	err := r.row("bulk load", func() (outcome, error) {
		run.next = c.bulk
		return run.written(c.bulk), inOneTransaction(run.store, run.engine.Cannot(LargeTransactions), c.bulk, run.put)
	})
	if err := cmp.Or(err, r.drain(run.store)); err != nil {
		return err
	}
	if err := r.row("individual writes", func() (outcome, error) { return run.commits(c.individual, 1, r.dir) }); err != nil {
		return err
	}
	if err := r.row("batch writes", func() (outcome, error) { return run.commits(c.batches, c.batch, r.dir) }); err != nil {
		return err
	}
	if why := run.engine.Cannot(NoSyncCommits); why != "" {
		// The items are written all the same, so that later rows do the same work (B1).
		_, err := run.commits(1, c.nosync, r.dir)
		return errors.Join(r.failed("nosync writes", Unsupported{why}), err)
	}
	if err := run.store.SetDurability(NoSync); err != nil {
		return err
	}
	if err := r.row("nosync writes", func() (outcome, error) { return run.commits(c.nosync, 1, r.dir) }); err != nil {
		return err
	}
	return cmp.Or(r.drain(run.store), run.store.SetDurability(Sync))
}

// commits writes count transactions of size new items each (B1).
func (run *redbRun) commits(count, size uint64, dir string) (outcome, error) {
	track := newTrack([]string{"write"}, redbPeriod, dir)
	defer track.abandon()
	for range count {
		first, from := run.next, time.Now()
		if err := run.store.Write(func(w Writer) error { return run.put(w, first, first+size) }); err != nil {
			return outcome{}, err
		}
		track.record(0, from, time.Now(), size)
		run.next += size
	}
	done := run.written(count * size)
	done.detail = track.finish("closed")
	return done, nil
}

// written is the outcome of a row that wrote items items.
func (run *redbRun) written(items uint64) outcome {
	return outcome{userWrittenBytes: items * redbItemBytes, liveBytes: run.next * redbItemBytes}
}

func (run *redbRun) put(w Writer, from, to uint64) error {
	var key [generate.ItemKeyBytes]byte
	var value [generate.ItemValueBytes]byte
	for i := from; i < to; i++ {
		if err := w.Put(run.items.Key(i, &key), run.items.Value(i, &value)); err != nil {
			return err
		}
	}
	return nil
}

func (run *redbRun) reads(r *Recorder) error {
	c := run.c
	order := generate.NewOrder(c.items(), 0)
	probes := make([]uint64, c.items())
	var value [generate.ItemValueBytes]byte
	for i := range probes {
		probes[i] = generate.Probe(run.items.Value(uint64(i), &value))
	}
	gets := uint64(0)
	for range c.reads {
		gets += probes[order.Take()]
	}
	scans := run.scansExpected(probes)
	order = generate.NewOrder(c.items(), 0)
	err := withReader(run.store, func(reader Reader) error {
		err := r.row("len()", func() (outcome, error) {
			got, err := reader.Len()
			return outcome{}, cmp.Or(err, expect("number of items", got, c.items()))
		})
		if err != nil {
			return err
		}
		err = r.rowOfPasses("random reads", redbReadPasses, func() (outcome, error) {
			got, err := run.gets(reader, order, c.reads)
			return outcome{}, cmp.Or(err, expect("sum of the values", got, gets))
		})
		if err != nil {
			return err
		}
		err = r.rowOfPasses("random range reads", redbReadPasses, func() (outcome, error) {
			got, err := run.scans(reader, order, c.scans)
			return outcome{}, cmp.Or(err, expect("sum of the ranges", got, scans))
		})
		if err != nil {
			return err
		}
		return r.check(run.fullCheck(reader, generate.NewOrder(c.items(), 0), c.items()))
	})
	// What the end of the last snapshot sets off is not the next row's work.
	return cmp.Or(err, r.drain(run.store))
}

// scansExpected is what scans must give, found by sorting all keys.
func (run *redbRun) scansExpected(probes []uint64) uint64 {
	type ranked struct {
		key [generate.ItemKeyBytes]byte
		i   uint64
	}
	sorted := make([]ranked, len(probes))
	for i := range sorted {
		run.items.Key(uint64(i), &sorted[i].key)
		sorted[i].i = uint64(i)
	}
	slices.SortFunc(sorted, func(a, b ranked) int { return slices.Compare(a.key[:], b.key[:]) })
	rankOf := make([]int, len(sorted))
	for rank, item := range sorted {
		rankOf[item.i] = rank
	}
	order := generate.NewOrder(run.c.items(), 0)
	sum := uint64(0)
	for range run.c.scans {
		rank := rankOf[order.Take()]
		acc := uint64(0)
		for _, item := range sorted[rank:min(rank+redbScanItems, len(sorted))] {
			acc = foldScan(acc, item.key[:], probes[item.i])
		}
		sum += acc
	}
	return sum
}

// gets sums the values of count items in order; a key that is not found shows as a wrong sum.
func (run *redbRun) gets(reader Reader, order generate.Order, count uint64) (uint64, error) {
	sum := uint64(0)
	var key [generate.ItemKeyBytes]byte
	visit := func(value []byte) { sum += generate.Probe(value) }
	for range count {
		if _, err := reader.Get(run.items.Key(order.Take(), &key), visit); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// scans sums count range reads that begin at the items of order.
func (run *redbRun) scans(reader Reader, order generate.Order, count uint64) (uint64, error) {
	sum, acc := uint64(0), uint64(0)
	var from [generate.ItemKeyBytes]byte
	visit := func(key, value []byte) { acc = foldScan(acc, key, generate.Probe(value)) }
	for range count {
		acc = 0
		if _, err := reader.Range(run.items.Key(order.Take(), &from), redbScanItems, visit); err != nil {
			return 0, err
		}
		sum += acc
	}
	return sum, nil
}

// foldScan adds an item of a range to its checksum, so that order, keys and values all count.
func foldScan(acc uint64, key []byte, valueProbe uint64) uint64 {
	head := uint64(0)
	if len(key) >= 8 {
		head = binary.LittleEndian.Uint64(key)
	}
	return bits.RotateLeft64(acc, 7) ^ head ^ valueProbe
}

func (run *redbRun) threads(r *Recorder) error {
	n := run.c.items()
	for _, t := range redbThreads {
		type shard struct {
			order           generate.Order
			count, expected uint64
		}
		var shards []shard
		var value [generate.ItemValueBytes]byte
		for i := range t.threads {
			from, to := n*i/t.threads, n*(i+1)/t.threads
			s := shard{generate.NewOrder(n, 0).SkipTo(from), to - from, 0}
			order := s.order
			for range s.count {
				s.expected += generate.Probe(run.items.Value(order.Take(), &value))
			}
			shards = append(shards, s)
		}
		err := r.row(t.name, func() (outcome, error) {
			errs := make([]error, len(shards))
			begin := make(chan struct{})
			var done sync.WaitGroup
			for i, s := range shards {
				done.Go(func() {
					<-begin
					errs[i] = withReader(run.store, func(reader Reader) error {
						got, err := run.gets(reader, s.order, s.count)
						return cmp.Or(err, expect("sum of the values", got, s.expected))
					})
				})
			}
			start := time.Now()
			close(begin)
			done.Wait()
			return outcome{seconds: time.Since(start).Seconds()}, errors.Join(errs...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (run *redbRun) removalsAndCompaction(r *Recorder) error {
	c := run.c
	order := generate.NewOrder(c.items(), c.items()/3)
	err := r.row("bulk removals", func() (outcome, error) {
		return outcome{}, inOneTransaction(run.store, "", c.removals(), func(w Writer, from, to uint64) error {
			order := order.SkipTo(from)
			var key [generate.ItemKeyBytes]byte
			for range to - from {
				if err := w.Remove(run.items.Key(order.Take(), &key)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err := cmp.Or(err, r.drain(run.store)); err != nil {
		return err
	}
	check := func() error {
		return withReader(run.store, func(reader Reader) error {
			return r.check(run.fullCheck(reader, order.SkipTo(c.removals()), c.items()-c.removals()))
		})
	}
	liveBytes := (c.items() - c.removals()) * redbItemBytes
	if err := r.sizeRow("size pre-compact", liveBytes); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	err = r.row("compaction", func() (outcome, error) {
		start := time.Now()
		if err := run.store.Compact(); err != nil {
			return outcome{}, err
		}
		took := time.Since(start).Seconds()
		return outcome{seconds: took, rewrites: true}, run.store.Reopen()
	})
	if err := cmp.Or(err, r.drain(run.store)); err != nil {
		return err
	}
	if err := r.sizeRow("size after bench", liveBytes); err != nil {
		return err
	}
	return check()
}

// fullCheck reads everything and compares every byte with what must be there: the next count items of order. Untimed.
func (run *redbRun) fullCheck(reader Reader, live generate.Order, count uint64) error {
	var itemKey [generate.ItemKeyBytes]byte
	var itemValue [generate.ItemValueBytes]byte
	expected := uint64(0)
	for range count {
		i := live.Take()
		expected += generate.Checksum(run.items.Key(i, &itemKey), run.items.Value(i, &itemValue))
	}
	length, err := reader.Len()
	if err != nil {
		return err
	}
	if err := expect("number of items by len()", length, count); err != nil {
		return err
	}
	return fullScan(reader, count, expected)
}
