package lab

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestAStallShowsAsEmptyPeriodsAndAsLatency(t *testing.T) {
	track := newTrack([]string{"read", "write"}, 10*time.Millisecond, t.TempDir())
	at := func(ms int) time.Time { return track.start.Add(time.Duration(ms) * time.Millisecond) }
	for ms := 1; ms < 10; ms++ {
		track.record(0, at(ms-1), at(ms), 1)
	}
	// Nothing ends for 31 ms; the write was due at 10 ms.
	track.record(1, at(10), at(40), 20)
	track.record(0, at(50), at(51), 1)
	d := track.finish("open")
	if rates := d.Series["ops/s"]; !slices.Equal(rates, []float64{900, 0, 0, 0, 2000}) {
		t.Error(rates)
	}
	for _, name := range []string{"read mean s", "write p95 s", "write p90 s", "disk bytes", "written bytes", "memory bytes"} {
		if len(d.Series[name]) != 5 {
			t.Error(name, d.Series[name])
		}
	}
	reads, writes := d.Latency["read"], d.Latency["write"]
	if reads.Count != 10 || writes.Count != 1 || math.Abs(d.LongestStall-0.031) > 1e-9 {
		t.Error(reads, writes, d.LongestStall)
	}
	if math.Abs(reads.P50-1e-3) > 1e-5 || math.Abs(writes.Max-30e-3) > 1e-4 || math.Abs(d.Series["write p50 s"][4]-30e-3) > 1e-4 {
		t.Error(reads, writes)
	}
	if len(d.Figures) != 0 {
		t.Error("nothing was waited for", d.Figures)
	}
}

func TestLatenessIsSeparateFromLatency(t *testing.T) {
	track := newTrack([]string{"write"}, time.Second, t.TempDir())
	for _, us := range []time.Duration{100, 300, 200} {
		track.beganLate(us * time.Microsecond)
	}
	d := track.finish("open")
	p50, most := d.Figures["start lateness p50 s"], d.Figures["start lateness max s"]
	if len(d.Latency) != 0 || len(d.Figures) != 2 || math.Abs(p50-200e-6) > 1e-6 || math.Abs(most-300e-6) > 1e-6 {
		t.Error(d.Latency, d.Figures)
	}
}

func TestPercentilesAreWithinAThousandth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h, values := newHistogram(), []float64{}
	for range 50_000 {
		nanoseconds := uint64(math.Exp(rng.Float64() * 28))
		h.record(nanoseconds)
		values = append(values, float64(nanoseconds)*1e-9)
	}
	slices.Sort(values)
	quantiles := []float64{0.01, 0.5, 0.9, 0.99, 0.999}
	for i, got := range h.at(quantiles...) {
		exact := values[int(math.Ceil(quantiles[i]*float64(len(values))))-1]
		if got < exact*(1-1e-9) || got > exact*1.001 {
			t.Errorf("%g: %g, not %g", quantiles[i], got, exact)
		}
	}
	h.reset()
	if h.count != 0 || h.at(0.5)[0] != 0 || slices.Max(h.counts[:]) != 0 {
		t.Error("something is left")
	}
	h.record(math.MaxUint64) // longer than an hour counts as an hour
	if h.at(0.5)[0] < histogramMax*1e-9 {
		t.Error(h.at(0.5))
	}
}

func TestFilesAreSeenWhileARowGoesOn(t *testing.T) {
	// On a busy machine a look may come late, and a walk that is slow is followed by a long rest.
	var disk []float64
	for _, period := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second} {
		dir := t.TempDir()
		track := newTrack([]string{"read"}, period, dir)
		for n := range 10 {
			if n == 5 {
				if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			from := time.Now()
			time.Sleep(period)
			track.record(0, from, time.Now(), 1)
		}
		disk = track.finish("closed").Series["disk bytes"]
		track.abandon() // once more does nothing
		if len(disk) < 9 {
			t.Fatal(disk)
		}
		if disk[0] == 0 && disk[len(disk)-1] >= 1<<20 {
			return
		}
	}
	t.Error(disk)
}

func TestAPauseAfterAWalkIsTwentyTimesItsDuration(t *testing.T) {
	var files walks
	now, walked := time.Now(), uint64(0)
	for _, look := range []struct {
		after time.Duration
		want  uint64
	}{{0, 1}, {500, 1}, {5000, 1}, {499, 1}, {1, 2}, {5999, 2}, {1, 3}} {
		now = now.Add(look.after * time.Millisecond)
		got := files.walked(func() time.Time { return now }, func() uint64 {
			now = now.Add(300 * time.Millisecond)
			walked++
			return walked
		})
		if got != look.want || walked != look.want {
			t.Fatalf("%d walks, the last %d, after %d ms; want %d", walked, got, look.after, look.want)
		}
	}
}
