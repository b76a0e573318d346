package lab

// Requests of many threads at once: writes of pairs, ranges and look-ups.
//
// - No answer is verified while the clock of the row runs. Each thread folds the sums of its answers into one
//   number. Afterwards the same requests are drawn again, to compute the number that it must be.
// - The value of ranges is keys over the time within calls. The value of look-ups is keys over wall clock
//   time.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"esker.invalid/bench/generate"
)

const (
	hotspotsLog2 = 13
	hotspotsStay = 0.99999
	backlogMax   = time.Second // an open loop that ends later than this is overloaded
)

// drive writes requests of pairs.
func (x *executor) drive(w work) (end done, err error) {
	began := x.content.to
	pairs := &pairSource{valueBytes: x.items.ValueBytes, left: w.Pairs, given: began}
	switch x.items.Kind {
	case "hotspots":
		hotspots := generate.NewHotspots(x.items.Seed, hotspotsStay, hotspotsLog2)
		pairs.next = func(uint64) (generate.ObigKey, bool) { return hotspots.NextKey() }
	default:
		pairs.next = func(given uint64) (generate.ObigKey, bool) { return x.items.obig(given), true }
	}
	spec := load{concurrency: w.Concurrency, multi: w.Multi, rate: w.Rate, time: w.Budget.Time, period: w.Period}
	loaded, err := drive(x.store, pairs, spec, x.dir)
	if err != nil {
		return end, err
	}
	x.content.to = pairs.given
	x.hotspotPairs += loaded.pairs
	end = done{
		Seconds: loaded.seconds, Ops: loaded.pairs, Commits: loaded.commits, WrittenBytes: loaded.bytes, Detail: loaded.detail,
	}
	if began > 0 {
		end.BeganOn = &began
	}
	if w.Rate > 0 {
		end.Figures = map[string]float64{"offered ops/s": w.Rate}
		if loaded.backlog > backlogMax {
			end.Void = fmt.Sprintf("overloaded: %.0f of %.0f pairs a second", float64(loaded.pairs)/loaded.seconds, w.Rate)
		}
	}
	return end, nil
}

// hotspots draws the hotspots again, and returns the number of new keys and the sum of the checksums.
func (x *executor) hotspots() (count, sum uint64) {
	hotspots, value := generate.NewHotspots(x.items.Seed, hotspotsStay, hotspotsLog2), make([]byte, x.items.ValueBytes)
	for range x.hotspotPairs {
		if key, isNew := hotspots.NextKey(); isNew {
			sum += generate.Checksum(key[:], generate.ObigValue(&key, value))
			count++
		}
	}
	return count, sum
}

// answer is when a request was made and answered, and the sum of what it found.
type answer struct {
	from, to time.Time
	sum      uint64
}

// answers sums up all requests of a thread, and the time within them.
type answers struct {
	requests, sum uint64
	busy          time.Duration
}

func (a *answers) add(busy time.Duration, sum uint64) {
	a.requests++
	a.sum = folded(a.sum, sum)
	a.busy += busy
}

// folded combines all answers to a thread, in their order. Adding them up would hide wrong answers that
// cancel.
func folded(sum, answer uint64) uint64 {
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], sum)
	binary.LittleEndian.PutUint64(both[8:], answer)
	return generate.Checksum(both[:8], both[8:])
}

// addPair combines all pairs of a range, in their order.
func addPair(sum uint64, key, value []byte) uint64 {
	return (bits.RotateLeft64(sum, 1) + generate.Probe(key)) ^ generate.Probe(value)
}

// requests runs ranges on one thread, or requests of look-ups on several, for the row's time. A request
// counts as its number of keys.
func (x *executor) requests(w work) (end done, err error) {
	ask, expected := x.lookUps, x.lookUpsExpected
	if w.Threads == 1 {
		ask, expected = x.oneRange, x.rangeExpected
	}
	var left atomic.Int64
	left.Store(int64(min(w.Budget.Ops, 1<<62)))
	var tracking sync.Mutex
	failures, all := make([]error, w.Threads), make([]answers, w.Threads)
	track := newTrack([]string{"request"}, w.Period, x.dir)
	defer track.abandon()
	start := time.Now()
	var readers sync.WaitGroup
	for thread := range w.Threads {
		readers.Go(func() {
			rng := generate.NewRng(x.items.Seed + thread)
			var own answers
			for time.Since(start) < w.Budget.Time && left.Add(-1) >= 0 {
				answer, err := ask(w, rng)
				if err != nil {
					failures[thread] = err
					return
				}
				own.add(answer.to.Sub(answer.from), answer.sum)
				tracking.Lock()
				track.record(0, answer.from, answer.to, w.Keys)
				tracking.Unlock()
			}
			all[thread] = own
		})
	}
	readers.Wait()
	wall := time.Since(start)
	if w.Threads == 1 { // OR2
		end = ofCalls(track, all[0].busy)
	} else {
		end = done{Seconds: wall.Seconds(), Ops: track.ops, Detail: track.finish("closed")}
	}
	if err := errors.Join(failures...); err != nil {
		return end, err
	}
	for thread, own := range all { // OR1
		rng, sum := generate.NewRng(x.items.Seed+uint64(thread)), uint64(0)
		for range own.requests {
			sum = folded(sum, expected(w, rng))
		}
		if err := expect("sum of all answers to a thread", own.sum, sum); err != nil {
			return end, err
		}
	}
	return end, nil
}

func (x *executor) oneRange(w work, rng *generate.Rng) (answer, error) {
	first, sum := x.items.obig(firstOfRange(w, rng)), uint64(0)
	visit := func(key, value []byte) { sum = addPair(sum, key, value) }
	from := time.Now()
	seen, err := x.store.Range(first[:], w.Keys, visit)
	to := time.Now()
	return answer{from, to, sum}, cmp.Or(err, expect("keys in a range", seen, min(w.Keys, w.Set)))
}

// lookUps makes one request: several look-ups in one snapshot.
func (x *executor) lookUps(w work, rng *generate.Rng) (answer, error) {
	keys, sum := make([]generate.ObigKey, w.Keys), uint64(0)
	for n := range keys {
		keys[n] = x.items.obig(rng.Below(w.Set))
	}
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
	err := withReader(x.store, read)
	to := time.Now()
	return answer{from, to, sum}, err
}

func (x *executor) rangeExpected(w work, rng *generate.Rng) (sum uint64) {
	var key, value []byte
	first := firstOfRange(w, rng)
	for i := first; i < first+min(w.Keys, w.Set); i++ {
		key = x.items.key(i, key)
		sum = addPair(sum, key, x.items.value(i, 0, &value))
	}
	return sum
}

func (x *executor) lookUpsExpected(w work, rng *generate.Rng) (sum uint64) {
	var value []byte
	for range w.Keys {
		sum += generate.Probe(x.items.value(rng.Below(w.Set), 0, &value))
	}
	return sum
}

// firstOfRange draws the first item of a range.
func firstOfRange(w work, rng *generate.Rng) uint64 {
	return rng.Below(max(w.Set-min(w.Set, w.Keys), 1))
}
