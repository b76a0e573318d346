package lab

// Work on entries that expire: crates/esker-bench/src/suites/works/expiring.rs in Go.

import (
	"cmp"
	"fmt"
	"time"

	"esker.invalid/bench/generate"
)

const (
	expiringEarlyMax    = time.Second // an engine may count whole seconds
	expiringTTLMin      = time.Second // for an entry that is put too late
	expiringClocksApart = 50 * time.Millisecond
	expiringSweptAfter  = 2 * time.Second // engines look for expired entries about once a second
)

// moments are the times at which entries expire.
type moments struct {
	entries    generate.Entries
	begin      time.Time // the first put
	lastDue    time.Time // no entry that was put late expires after this
	longestPut time.Duration
}

func (x *executor) onExpiring(w work, report progress) (done, error) {
	switch w.Do {
	case "put_expiring":
		x.moments.entries = generate.Entries{Seed: x.items.Seed, HoldMs: w.HoldMs, SpreadMs: w.SpreadMs}
		return x.putExpiring(w.Count, report)
	case "wait_expiring":
		time.Sleep(time.Until(x.moments.begin.Add(time.Duration(w.Ms) * time.Millisecond)))
		if w.Swept {
			time.Sleep(time.Until(x.moments.lastDue.Add(expiringSweptAfter)))
		}
		return done{}, nil
	case "read_expiring":
		return x.readExpiring(w.Budget)
	case "check":
		return done{}, x.checkExpiring()
	}
	return done{}, fmt.Errorf("not the work of entries that expire: %s", w.Do)
}

func (x *executor) lastingBytes() uint64 {
	return generate.LastingEntries(x.content.to) * x.items.itemBytes()
}

// due returns when entry i expires, or false if it never does.
func (m *moments) due(i uint64) (time.Time, bool) {
	ms, expires := m.entries.ExpiresMs(i)
	return m.begin.Add(time.Duration(ms) * time.Millisecond), expires
}

func (x *executor) putExpiring(count uint64, report progress) (done, error) {
	calls, m := newCalls([]string{"put"}, budget{1<<63 - 1, count}, x.dir), &x.moments
	defer calls.track.abandon()
	m.begin = time.Now()
	late := 0
	var value [generate.EntryValueBytes]byte
	for i := range count {
		key := m.entries.Key(i)
		m.entries.Value(i, &value)
		from, ttl := time.Now(), time.Duration(0)
		if due, expires := m.due(i); expires {
			if ttl = due.Sub(from); ttl < expiringTTLMin {
				ttl = expiringTTLMin
				late++
			}
		}
		if err := calls.call(0, func() error { return x.expiring.PutFor(key[:], value[:], ttl) }); err != nil {
			return done{}, err
		}
		to := time.Now()
		m.longestPut, m.lastDue = max(m.longestPut, to.Sub(from)), to.Add(expiringTTLMin)
		report(i + 1)
	}
	x.content.to = count
	bytes := count * x.items.itemBytes()
	out := calls.finish(count, bytes, bytes)
	out.Detail.figure("entries put too late", float64(late))
	return out, nil
}

// judge fails if a read between these times must not have found this.
func (m *moments) judge(i uint64, from, to time.Time, found bool) error {
	due, expires := m.due(i)
	if !found && (!expires || to.Add(expiringEarlyMax+expiringClocksApart).Before(due)) {
		return wrong{"an entry was gone too early"}
	}
	if m.lastDue.After(due) {
		due = m.lastDue
	}
	if found && expires && from.After(due.Add(m.longestPut+expiringClocksApart)) {
		return wrong{"an expired entry was found"}
	}
	return nil
}

func (x *executor) readExpiring(budget budget) (done, error) {
	calls, m := newCalls([]string{"read"}, budget, x.dir), &x.moments
	defer calls.track.abandon()
	rng, reads, hits := generate.NewRng(x.items.Seed), 0, 0
	var value [generate.EntryValueBytes]byte
	got, found := uint64(0), false
	visit := func(value []byte) { got = generate.Probe(value) }
	for calls.areLeft() {
		i := rng.Below(x.content.to)
		key := m.entries.Key(i)
		from := time.Now()
		err := calls.call(0, func() (err error) {
			found, err = x.expiring.Get(key[:], visit)
			return err
		})
		if err := cmp.Or(err, m.judge(i, from, time.Now(), found)); err != nil {
			return done{}, err
		}
		reads++
		if found {
			if err := expect("the value of an entry", got, generate.Probe(m.entries.Value(i, &value))); err != nil {
				return done{}, err
			}
			hits++
		}
	}
	out := calls.finish(0, 0, x.lastingBytes())
	out.Detail.figure("hit rate", float64(hits)/float64(max(reads, 1)))
	return out, nil
}

// checkExpiring fails unless the entries that never expire are there, unchanged, and no others.
func (x *executor) checkExpiring() error {
	m, count := &x.moments, x.content.to
	expected := uint64(0)
	var value [generate.EntryValueBytes]byte
	for i := uint64(0); i < count; i += generate.EntriesPerLasting {
		key := m.entries.Key(i)
		expected += generate.Checksum(key[:], m.entries.Value(i, &value))
	}
	return checkScan(generate.LastingEntries(count), expected, x.expiring.Scan)
}
