package lab

// Latencies of single operations, and their course over a row: crates/esker-bench/src/track.rs in Go.
//
// - An operation belongs to the period in which it ended. A period without operations has a zero, not a gap.
// - Percentiles come from histograms whose buckets are a thousandth of their values wide, never from means of
//   percentiles.
// - The process and its files are looked at beside the operations, never between two of them.
// - The delay of operations that a writer waited for is due to the machine and the lab. It is a figure of its
//   own, and the latencies contain it.

import (
	"sync"
	"time"
)

type kind struct {
	name        string
	all, period *histogram
}

type track struct {
	kinds        []kind
	period       time.Duration
	start, ends  time.Time
	lastEnd      time.Time
	longestStall time.Duration
	lateness     *histogram // nil if no writer waited
	ops          uint64
	periodOps    uint64
	series       map[string][]float64
	watch        *watch
}

func newTrack(kinds []string, period time.Duration, dir string) *track {
	t := &track{period: period, series: map[string][]float64{}}
	for _, name := range kinds {
		t.kinds = append(t.kinds, kind{name, newHistogram(), newHistogram()})
	}
	t.start = time.Now()
	t.ends, t.lastEnd = t.start.Add(period), t.start
	t.watch = newWatch(t.start, period, dir)
	return t
}

// record adds an operation that was due or began at from and ended at to. For the rate it counts as ops
// operations.
func (t *track) record(kind int, from, to time.Time, ops uint64) {
	for !to.Before(t.ends) {
		t.endPeriod()
	}
	nanoseconds := uint64(max(to.Sub(from), 1))
	t.kinds[kind].all.record(nanoseconds)
	t.kinds[kind].period.record(nanoseconds)
	t.longestStall = max(t.longestStall, to.Sub(t.lastEnd))
	if to.After(t.lastEnd) {
		t.lastEnd = to
	}
	t.ops += ops
	t.periodOps += ops
}

// beganLate records how late an operation began that a writer waited for.
func (t *track) beganLate(by time.Duration) {
	if t.lateness == nil {
		t.lateness = newHistogram()
	}
	t.lateness.record(uint64(max(by, 1)))
}

func (t *track) elapsed() time.Duration { return time.Since(t.start) }

// seriesQuantiles are recorded for each period, beside mean and maximum.
var seriesQuantiles = []struct {
	name string
	at   float64
}{{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}}

func (t *track) endPeriod() {
	push := func(name string, value float64) { t.series[name] = append(t.series[name], value) }
	push("ops/s", float64(t.periodOps)/t.period.Seconds())
	for i := range t.kinds {
		k := &t.kinds[i]
		push(k.name+" mean s", k.period.mean())
		for _, quantile := range seriesQuantiles {
			push(k.name+" "+quantile.name+" s", k.period.at(quantile.at)[0])
		}
		push(k.name+" max s", float64(k.period.max)*1e-9)
		k.period.reset()
	}
	t.periodOps = 0
	t.ends = t.ends.Add(t.period)
}

// abandon stops the watch of an unfinished track. After finish it does nothing.
func (t *track) abandon() { t.watch.end() }

// finish sums up the row. load is "open" or "closed".
func (t *track) finish(load string) *detail {
	if len(t.series) == 0 && t.ops > 0 {
		t.period = max(t.elapsed(), 1) // shorter than a period: one figure for all
		t.endPeriod()
	}
	for _, s := range t.watch.samples(len(t.series["ops/s"])) {
		t.series["memory bytes"] = append(t.series["memory bytes"], float64(s.memory))
		t.series["disk bytes"] = append(t.series["disk bytes"], float64(s.disk))
		t.series["written bytes"] = append(t.series["written bytes"], float64(s.written))
	}
	d := &detail{
		Load: load, Latency: map[string]latency{}, PeriodS: t.period.Seconds(), Series: t.series,
		LongestStall: t.longestStall.Seconds(), Figures: map[string]float64{},
	}
	for _, k := range t.kinds {
		if k.all.count > 0 {
			d.Latency[k.name] = k.all.latency()
		}
	}
	if t.lateness != nil {
		lateness := t.lateness.latency()
		d.figure("start lateness p50 s", lateness.P50)
		d.figure("start lateness max s", lateness.Max)
	}
	return d
}

// sample is a look at the process and its files; written counts from the start of the row.
type sample struct{ memory, disk, written uint64 }

// watch takes a sample at the end of each period.
type watch struct {
	start  time.Time
	period time.Duration
	dir    string
	before uint64
	files  walks
	stop   chan struct{}
	once   sync.Once
	ended  chan struct{}
	taken  []sample // the watching goroutine's until ended is closed
}

func newWatch(start time.Time, period time.Duration, dir string) *watch {
	w := &watch{start: start, period: period, dir: dir, stop: make(chan struct{}), ended: make(chan struct{})}
	w.before = procFields("/proc/self/io")["write_bytes"]
	go w.run()
	return w
}

func (w *watch) next() time.Time { return w.start.Add(time.Duration(len(w.taken)+1) * w.period) }

func (w *watch) run() {
	defer close(w.ended)
	timer := time.NewTimer(w.period)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		// A look that takes longer than a period also stands for the periods that it missed.
		for now := w.look(); !w.next().After(time.Now()); {
			w.taken = append(w.taken, now)
		}
		timer.Reset(time.Until(w.next()))
	}
}

func (w *watch) look() sample {
	memory := procFields("/proc/self/status")["VmRSS"] * 1024
	return sample{memory, w.files.size(w.dir), procFields("/proc/self/io")["write_bytes"] - w.before}
}

func (w *watch) end() {
	w.once.Do(func() { close(w.stop) })
	<-w.ended
}

// samples ends the watch and returns one sample for each period.
func (w *watch) samples(periods int) []sample {
	w.end()
	if len(w.taken) < periods {
		last := w.look()
		for len(w.taken) < periods {
			w.taken = append(w.taken, last)
		}
	}
	return w.taken[:periods]
}
