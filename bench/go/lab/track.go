package lab

// Latencies of single operations and how a row goes over time: crates/esker-bench/src/track.rs in Go.
//
// T1. An operation belongs to the period in which it ended; a period without operations is a zero, not a gap.
// T2. Percentiles come from histograms with buckets of a thousandth of their value, never from means of percentiles.

import (
	"maps"
	"math/bits"
	"slices"
	"time"
)

// histogram counts nanoseconds in buckets as wide as 1/1024 of what is in them.
type histogram struct {
	counts map[int]uint64
	count  uint64
	sum    float64
	max    uint64
}

const histogramBits = 10

func bucketOf(value uint64) int {
	shift := max(bits.Len64(value)-histogramBits-1, 0)
	return shift<<(histogramBits+1) + int(value>>shift)
}

// bucketEnd is the highest value of a bucket.
func bucketEnd(bucket int) uint64 {
	shift, head := bucket>>(histogramBits+1), uint64(bucket&(1<<(histogramBits+1)-1))
	return (head+1)<<shift - 1
}

func newHistogram() *histogram { return &histogram{counts: map[int]uint64{}} }

func (h *histogram) record(value uint64) {
	h.counts[bucketOf(value)]++
	h.count++
	h.sum += float64(value)
	h.max = max(h.max, value)
}

// at gives the values at rising quantiles, in seconds.
func (h *histogram) at(quantiles ...float64) []float64 {
	values := make([]float64, len(quantiles))
	seen, next := uint64(0), 0
	for _, bucket := range slices.Sorted(maps.Keys(h.counts)) {
		seen += h.counts[bucket]
		for next < len(quantiles) && float64(seen) >= quantiles[next]*float64(h.count) {
			values[next] = float64(min(bucketEnd(bucket), h.max)) * 1e-9
			next++
		}
	}
	return values
}

func (h *histogram) latency() latency {
	at := h.at(0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)
	return latency{h.count, h.sum / float64(h.count) * 1e-9, at[0], at[1], at[2], at[3], at[4], at[5], float64(h.max) * 1e-9}
}

type kind struct {
	name        string
	all, period *histogram
}

type track struct {
	kinds         []kind
	dir           string
	period        time.Duration
	start, ends   time.Time
	lastEnd       time.Time
	longestStall  time.Duration
	ops           uint64
	periodOps     uint64
	writtenBefore uint64
	series        map[string][]float64
}

func newTrack(kinds []string, period time.Duration, dir string) *track {
	t := &track{dir: dir, period: period, series: map[string][]float64{}}
	for _, name := range kinds {
		t.kinds = append(t.kinds, kind{name, newHistogram(), newHistogram()})
	}
	t.writtenBefore = procFields("/proc/self/io")["write_bytes"]
	t.start = time.Now()
	t.ends, t.lastEnd = t.start.Add(period), t.start
	return t
}

// record says that an operation due or begun at from has ended at to; it counts as ops of them for the rate.
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

func (t *track) elapsed() time.Duration { return time.Since(t.start) }

func (t *track) endPeriod() {
	push := func(name string, value float64) { t.series[name] = append(t.series[name], value) }
	push("ops/s", float64(t.periodOps)/t.period.Seconds())
	for i := range t.kinds {
		k := &t.kinds[i]
		at := k.period.at(0.5, 0.99)
		push(k.name+" p50 s", at[0])
		push(k.name+" p99 s", at[1])
		push(k.name+" max s", float64(k.period.max)*1e-9)
		k.period = newHistogram()
	}
	push("memory bytes", float64(procFields("/proc/self/status")["VmRSS"]*1024))
	push("disk bytes", float64(diskBytes(t.dir).lengths))
	push("written bytes", float64(procFields("/proc/self/io")["write_bytes"]-t.writtenBefore))
	t.periodOps = 0
	t.ends = t.ends.Add(t.period)
}

// finish sums up; the load is "open" or "closed".
func (t *track) finish(load string) *detail {
	if len(t.series) == 0 && t.ops > 0 {
		t.period = max(t.elapsed(), 1) // shorter than a period: one figure over what there was
		t.endPeriod()
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
	return d
}
