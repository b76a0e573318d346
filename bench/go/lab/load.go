package lab

// Writes keys from a source on many goroutines, in requests of several pairs: crates/esker-bench/src/load in
// Go.
//
// - Closed loop: a writer takes its next request when its last one has ended. Latency counts from the call.
// - Open loop, if a rate is given: request n is due at start + n / rate, and a free writer takes it. Latency
//   counts from when the request was due, so that waiting behind a stall counts.
// - A writer that is free before its request is due sleeps in the system, like a thread of the Rust side. A
//   timer of Go's runtime that is due within 1 ms may be 1 ms late when the process is otherwise idle
//   (netpoll_epoll.go). The delay of the sleep is recorded.
// - One writer sleeps at a time, and the others queue for their requests. A writer that sleeps in the system
//   holds one of the runtime's processors until the runtime takes it away. Many sleepers would keep the
//   processors from the engine.

import (
	"sync"
	"time"

	"esker.invalid/bench/generate"
)

type load struct {
	concurrency, multi uint64
	rate               float64       // pairs per second; 0 is a closed loop
	time               time.Duration // the load ends after this time, unless its source ends before
	period             time.Duration
}

type loaded struct {
	pairs, bytes, commits uint64
	seconds               float64
	detail                *detail
	backlog               time.Duration // time from when the last request was due to its end
}

type pair struct {
	key   generate.ObigKey
	value []byte
}

// pairSource gives pairs. The function next returns the key with a number.
type pairSource struct {
	next        func(given uint64) (key generate.ObigKey, isNew bool)
	valueBytes  int
	left, given uint64
}

// take puts new keys into the first elements of pairs and returns their number. The values are made by fill.
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

// fill makes the values of pairs. It needs no lock, so that other writers can draw keys meanwhile.
func (s *pairSource) fill(pairs []pair) {
	for i := range pairs {
		if pairs[i].value == nil {
			pairs[i].value = make([]byte, s.valueBytes)
		}
		generate.ObigValue(&pairs[i].key, pairs[i].value)
	}
}

// drive writes the pairs of the source until it ends.
func drive(store Store, source *pairSource, load load, dir string) (loaded, error) {
	var taking, tracking sync.Mutex
	var done loaded
	var failure error
	// This is no Mutex: unlocking a Mutex that has been waited for longer than 1 ms hands over the processor,
	// while a request is due.
	turn := make(chan struct{}, 1)
	track := newTrack([]string{"write"}, load.period, dir)
	defer track.abandon()
	start := time.Now()
	// take gets the keys of a request and its number; no keys when the load has ended.
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
	// next returns the pairs of a request when it is due, the time from which its latency counts, and the delay
	// of the sleep before it.
	next := func(pairs []pair) (n int, due time.Time, late time.Duration) {
		if load.rate == 0 {
			n, _ = take(pairs)
			source.fill(pairs[:n])
			return n, time.Now(), 0
		}
		turn <- struct{}{}
		defer func() { <-turn }()
		n, number := take(pairs)
		if n == 0 {
			return 0, due, 0
		}
		source.fill(pairs[:n])
		due = start.Add(time.Duration(float64(number*load.multi) / load.rate * 1e9))
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

// waitUntil sleeps until due, and returns how late the sleep ended. It returns 0 if the time had passed
// already: the engine caused that delay.
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
