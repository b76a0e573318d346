package lab

// Load: keys from a source, written by many at once, in requests of several pairs: crates/esker-bench/src/load in Go.
//
// LO1. Closed loop: a writer takes its next request when its last one has ended; latency counts from the call.
// LO2. Open loop (a rate is given): request n is due at start + n / rate, whoever is free takes it, and its latency counts from
//      when it was due, so that waiting behind a stall counts.
// LO3. Whoever is free before its request is due sleeps in the system, as a thread of the Rust side does: a timer of Go's runtime that is
//      due within 1 ms is up to 1 ms late where nothing else is to do (netpoll_epoll.go). How late the sleep ended is told (T4 of track.go).
// LO4. One sleeps at a time, the others queue for their requests: each that sleeps in the system holds one of the runtime's processors until
//      the runtime takes that away, so that many would keep them from the engine.

import (
	"sync"
	"time"

	"esker.invalid/bench/generate"
)

type load struct {
	concurrency, multi uint64
	rate               float64       // pairs a second; 0 is a closed loop
	time               time.Duration // the load ends after so long, if its source has not ended before
	period             time.Duration
}

type loaded struct {
	pairs, bytes, commits uint64
	seconds               float64
	detail                *detail
	backlog               time.Duration // how far the last request ended behind the time at which it was due
}

type pair struct {
	key   generate.ObigKey
	value []byte
}

// pairSource gives pairs: the key of number given, or whatever next says.
type pairSource struct {
	next        func(given uint64) (key generate.ObigKey, isNew bool)
	valueBytes  int
	left, given uint64
}

// take gives the first of pairs new keys, and says how many; their values are fill's work.
func (s *pairSource) take(pairs []pair) int {
	n := 0
	for ; n < len(pairs) && s.left > 0; n++ {
		key, isNew := s.next(s.given)
		if isNew {
			s.given++
		}
		pairs[n].key = key
		s.left--
	}
	return n
}

// fill makes the values of pairs that were taken; whoever draws keys beside it is not held up.
func (s *pairSource) fill(pairs []pair) {
	for i := range pairs {
		if pairs[i].value == nil {
			pairs[i].value = make([]byte, s.valueBytes)
		}
		generate.ObigValue(&pairs[i].key, pairs[i].value)
	}
}

// drive writes what the source gives until it ends.
func drive(store Store, source *pairSource, load load, dir string) (loaded, error) {
	var taking, tracking sync.Mutex
	var done loaded
	var failure error
	// LO4. No Mutex: one that somebody has waited for longer than 1 ms gives the processor away when it is unlocked, and here a request is due.
	turn := make(chan struct{}, 1)
	track := newTrack([]string{"write"}, load.period, dir)
	defer track.abandon()
	start := time.Now()
	// take gives a request of n pairs and its number; of none when the load has ended.
	take := func(pairs []pair) (n int, number uint64) {
		taking.Lock()
		defer taking.Unlock()
		if failure == nil && time.Since(start) < load.time {
			n = source.take(pairs)
		}
		number = done.commits
		if n > 0 {
			done.commits++
			done.pairs += uint64(n)
			done.bytes += uint64(n) * uint64(len(pairs[0].key)+source.valueBytes)
		}
		return n, number
	}
	// next gives a request when it is due, from when its latency counts, and how late that is where it was waited for.
	next := func(pairs []pair) (n int, due time.Time, late time.Duration) {
		if load.rate == 0 {
			n, _ = take(pairs)
			source.fill(pairs[:n])
			return n, time.Now(), 0 // LO1
		}
		turn <- struct{}{} // LO4
		defer func() { <-turn }()
		n, number := take(pairs)
		if n == 0 {
			return 0, due, 0
		}
		source.fill(pairs[:n])
		due = start.Add(time.Duration(float64(number*load.multi) / load.rate * 1e9)) // LO2
		return n, due, waitUntil(due)
	}
	work := func() {
		pairs := make([]pair, load.multi)
		for {
			n, due, late := next(pairs)
			if n == 0 {
				return
			}
			err := store.Write(func(w Writer) error {
				for i := range pairs[:n] {
					if err := w.Put(pairs[i].key[:], pairs[i].value); err != nil {
						return err
					}
				}
				return nil
			})
			end := time.Now()
			if err != nil {
				taking.Lock()
				failure = err
				taking.Unlock()
				return
			}
			tracking.Lock()
			if late > 0 {
				track.beganLate(late)
			}
			track.record(0, due, end, uint64(n))
			done.backlog = 0
			if load.rate > 0 {
				done.backlog = max(end.Sub(due), 0)
			}
			tracking.Unlock()
		}
	}
	var writers sync.WaitGroup
	for range load.concurrency {
		writers.Go(work)
	}
	writers.Wait()
	done.seconds = time.Since(start).Seconds()
	kind := "closed"
	if load.rate > 0 {
		kind = "open"
	}
	done.detail = track.finish(kind)
	return done, failure
}

// waitUntil sleeps until then, and says how late that ended; 0 where the time had gone by before, which is the engine's lateness (LO3).
func waitUntil(due time.Time) time.Duration {
	left := time.Until(due)
	if left <= 0 {
		return 0
	}
	for ; left > 0; left = time.Until(due) {
		sleep(left)
	}
	return -left
}
