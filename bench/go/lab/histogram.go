package lab

// Histograms of latencies in nanoseconds. A bucket is as wide as 1/1024 of its values. The buckets are an
// array, so that counting a value takes a few instructions.
//
//	0, 1, ... 2047 | 2048-2049, ... 4094-4095 | 4096-4099, ... | up to an hour, and all that is longer

import "math/bits"

const (
	histogramBits    = 10
	histogramMax     = 3_600_000_000_000
	histogramBuckets = 33 << histogramBits // of the highest value and all below
)

type histogram struct {
	counts [histogramBuckets]uint64
	count  uint64
	sum    float64
	max    uint64
}

func bucketOf(value uint64) int {
	shift := max(bits.Len64(value)-histogramBits-1, 0)
	return shift<<histogramBits + int(value>>shift)
}

// bucketEnd returns the highest value of a bucket.
func bucketEnd(bucket int) uint64 {
	shift := max(bucket>>histogramBits-1, 0)
	return uint64(bucket-shift<<histogramBits+1)<<shift - 1
}

func newHistogram() *histogram { return &histogram{} }

func (h *histogram) reset() {
	clear(h.counts[:bucketOf(min(h.max, histogramMax))+1])
	h.count, h.sum, h.max = 0, 0, 0
}

func (h *histogram) record(value uint64) {
	h.counts[bucketOf(min(value, histogramMax))]++
	h.count++
	h.sum += float64(value)
	h.max = max(h.max, value)
}

// mean returns the mean in seconds; 0 if the histogram is empty.
func (h *histogram) mean() float64 { return h.sum / float64(max(h.count, 1)) * 1e-9 }

// at returns the values at rising quantiles, in seconds; zeros if the histogram is empty.
func (h *histogram) at(quantiles ...float64) []float64 {
	values := make([]float64, len(quantiles))
	seen, next := uint64(0), 0
	for bucket := 0; h.count > 0 && next < len(quantiles); bucket++ {
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
	return latency{h.count, h.mean(), at[0], at[1], at[2], at[3], at[4], at[5], float64(h.max) * 1e-9}
}
