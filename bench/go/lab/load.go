package lab

// Load: keys from a source, written by many at once, in requests of several pairs: crates/esker-bench/src/load in Go.
//
// LO1. Closed loop: a writer takes its next request when its last one has ended; latency counts from the call.
// LO2. Open loop (a rate is given): request n is due at start + n / rate, whoever is free takes it, and its latency counts from
//      when it was due, so that waiting behind a stall counts.

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

// source gives pairs: the key of number given, or whatever next says.
type source struct {
	next        func(given uint64) (key generate.ObigKey, isNew bool)
	valueBytes  int
	left, given uint64
}

func sequentialSource(valueBytes int, pairs uint64) *source {
	next := func(given uint64) (generate.ObigKey, bool) { return generate.ObigSequential(given), true }
	return &source{next: next, valueBytes: valueBytes, left: pairs}
}

// take fills up to len(pairs) of them and says how many.
func (s *source) take(pairs []pair) int {
	n := 0
	for ; n < len(pairs) && s.left > 0; n++ {
		key, isNew := s.next(s.given)
		if isNew {
			s.given++
		}
		if pairs[n].value == nil {
			pairs[n].value = make([]byte, s.valueBytes)
		}
		pairs[n].key = key
		generate.ObigValue(&key, pairs[n].value)
		s.left--
	}
	return n
}

// drive writes what the source gives until it ends.
func drive(store Store, source *source, load load, dir string) (loaded, error) {
	var taking, tracking sync.Mutex
	var done loaded
	var failure error
	track := newTrack([]string{"write"}, load.period, dir)
	defer track.abandon()
	start := time.Now()
	work := func() {
		pairs := make([]pair, load.multi)
		for {
			taking.Lock()
			n := 0
			if failure == nil && time.Since(start) < load.time {
				n = source.take(pairs)
			}
			number := done.commits
			if n > 0 {
				done.commits++
				done.pairs += uint64(n)
				done.bytes += uint64(n) * uint64(len(pairs[0].key)+source.valueBytes)
			}
			taking.Unlock()
			if n == 0 {
				return
			}
			due := time.Now() // LO1
			if load.rate > 0 {
				due = start.Add(time.Duration(float64(number*load.multi) / load.rate * 1e9)) // LO2
				time.Sleep(time.Until(due))
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
