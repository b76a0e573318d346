package lab

import (
	"slices"
	"sync"
	"testing"
	"time"

	"esker.invalid/bench/generate"
)

// clockedStore notes when writes begin.
type clockedStore struct {
	echo
	noting sync.Mutex
	begun  []time.Time
}

func (s *clockedStore) Write(work func(Writer) error) error {
	now := time.Now()
	s.noting.Lock()
	s.begun = append(s.begun, now)
	s.noting.Unlock()
	return s.echo.Write(work)
}

// The test does not judge how soon the system wakes a thread.
func TestNothingBeginsBeforeItIsDueAndLatenessIsRecorded(t *testing.T) {
	const rate, multi, requests = 5_000, 2, 50
	paced := load{concurrency: 4, multi: multi, rate: rate, time: time.Hour, period: time.Second}
	// A machine that stands still for as long as a load takes leaves nothing to wait for, but not each time.
	for range 100 {
		store, pairs := &clockedStore{}, &pairSource{valueBytes: 32, left: requests * multi}
		pairs.next = func(given uint64) (generate.ObigKey, bool) { return generate.ObigSequential(given), true }
		before := time.Now()
		done, err := drive(store, pairs, paced, t.TempDir())
		if err != nil || done.commits != requests || len(store.begun) != requests {
			t.Fatal(done.commits, len(store.begun), err)
		}
		slices.SortFunc(store.begun, time.Time.Compare)
		for i, begun := range store.begun {
			if due := before.Add(time.Duration(float64(i*multi) / rate * 1e9)); begun.Before(due) {
				t.Fatalf("request %d began %s before it was due", i, due.Sub(begun))
			}
		}
		if done.detail.Figures["start lateness p50 s"] > 0 {
			return
		}
	}
	t.Error("nothing was waited for")
}
