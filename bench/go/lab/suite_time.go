package lab

// Suite time: entries that expire; crates/esker-bench/src/suites/time.rs says what each row does. The change feed is Esker's alone.
//
// TM1. Each entry is put with what is left of its time then, so entries of all engines expire at the same moments, counted from the first put.
// TM2. Every read is judged: an entry is there until a second before its moment, and not afterwards. At the end a scan shows the entries that do
// not expire, and no other.

import (
	"cmp"
	"errors"
	"time"

	"esker.invalid/bench/generate"
)

const (
	timeSeed       = 47
	timeItemBytes  = 16 + generate.EntryValueBytes
	timeCacheBytes = 512 << 20
	timeFeedGroup  = 1
	timeNoFeed     = "it has no change feed that survives the process"
	timeNoExpiry   = "its entries do not expire"

	timePuts  = "puts with a time to live"
	timeReads = "reads while entries expire"
	timeSize  = "size after expiry"

	timeEarlyMax    = time.Second // what the engine may be early by: it may count whole seconds
	timeTTLMin      = time.Second
	timeClocksApart = 50 * time.Millisecond
	timeSweptAfter  = 2 * time.Second // from the last expiry to the look at the files
	timeTellEvery   = 1000
	timeTestReads   = 200
)

// timeExpiry is what the rows of expiry do at a scale.
type timeExpiry struct {
	count        uint64
	hold, spread time.Duration // from the first put to the first expiry, and from there to the last
	readsAfter   time.Duration // from the first put to the first read
	reads        budget
}

func timeExpiryOf(scale string) timeExpiry {
	reads := budgetOf(scale, timeTestReads)
	of := func(count uint64, hold time.Duration) timeExpiry {
		return timeExpiry{count, hold, reads.time, hold, reads}
	}
	switch scale {
	case "test": // the few reads come when half of the entries have expired
		return timeExpiry{60, time.Second, 2 * time.Second, 2 * time.Second, reads}
	case "quick":
		return of(50_000, 4*time.Second)
	case "seed":
		return of(500_000, 30*time.Second)
	}
	return of(5_000_000, 300*time.Second)
}

type timeSuite struct{}

func (timeSuite) Name() string { return "time" }

func (timeSuite) Rows(string) []Row {
	rows := []Row{rate(timePuts, 0), rate(timeReads, 0), size(timeSize)}
	for _, name := range []string{"commits without a feed", "commits with a feed reader", "reading the feed", "reading the log's files"} {
		rows = append(rows, rate(name, timeFeedGroup))
	}
	return rows
}

func (s timeSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	native, expires := engine.(ExpiringEngine)
	why := engine.Cannot(AsyncCommits)
	switch {
	case why != "":
	case group == timeFeedGroup:
		why = timeNoFeed
	case !expires:
		why = timeNoExpiry
	}
	if why != "" {
		return cannotGroup(s, scale, group, why, r)
	}
	options := OpenOptions{CacheBytes: timeCacheBytes, ValueBytes: generate.EntryValueBytes, Durability: Async}
	expiry := timeExpiryOf(scale)
	run := &timeRun{
		count:   expiry.count,
		entries: generate.Entries{Seed: timeSeed, HoldMs: uint64(expiry.hold.Milliseconds()), SpreadMs: uint64(expiry.spread.Milliseconds())},
	}
	store, err := native.OpenExpiring(r.dir, options)
	if err != nil {
		return err
	}
	if err := errors.Join(run.rows(store, expiry, r), store.Close()); err != nil {
		return err
	}
	if store, err = native.OpenExpiring(r.dir, options); err != nil {
		return err
	}
	err = cmp.Or(r.drain(store), r.sizeRow(timeSize, run.lastingBytes()))
	return errors.Join(cmp.Or(err, r.check(run.check(store))), store.Close())
}

type timeRun struct {
	entries    generate.Entries
	count      uint64
	begin      time.Time // the first put
	lastDue    time.Time // no entry that was put late expires after this
	longestPut time.Duration
}

func (run *timeRun) rows(store Expiring, expiry timeExpiry, r *Recorder) error {
	far := r.howFar("entries", run.count)
	err := r.row(timePuts, func() (outcome, error) {
		calls := newCalls([]string{"put"}, operations(run.count), r.dir)
		defer calls.track.abandon()
		return run.puts(store, calls, far)
	})
	if err := cmp.Or(err, r.drain(store)); err != nil {
		return err
	}
	time.Sleep(time.Until(run.begin.Add(expiry.readsAfter)))
	err = r.row(timeReads, func() (outcome, error) {
		calls := newCalls([]string{"read"}, expiry.reads, r.dir)
		defer calls.track.abandon()
		return run.reads(store, calls)
	})
	if err != nil {
		return err
	}
	time.Sleep(time.Until(run.begin.Add(expiry.hold + expiry.spread + timeSweptAfter)))
	time.Sleep(time.Until(run.lastDue.Add(timeSweptAfter)))
	return cmp.Or(r.drain(store), r.check(run.check(store)))
}

// due says when entry i expires; false if it never does.
func (run *timeRun) due(i uint64) (time.Time, bool) {
	ms, expires := run.entries.ExpiresMs(i)
	return run.begin.Add(time.Duration(ms) * time.Millisecond), expires
}

func (run *timeRun) lastingBytes() uint64 { return generate.LastingEntries(run.count) * timeItemBytes }

func (run *timeRun) puts(store Expiring, calls *calls, far *howFar) (outcome, error) {
	run.begin = time.Now()
	late := 0
	var value [generate.EntryValueBytes]byte
	for i := range run.count {
		key := run.entries.Key(i)
		run.entries.Value(i, &value)
		from, ttl := time.Now(), time.Duration(0)
		if due, expires := run.due(i); expires {
			if ttl = due.Sub(from); ttl < timeTTLMin {
				ttl = timeTTLMin
				late++
			}
		}
		if err := calls.call(0, func() error { return store.PutFor(key[:], value[:], ttl) }); err != nil {
			return outcome{}, err
		}
		to := time.Now()
		run.longestPut, run.lastDue = max(run.longestPut, to.Sub(from)), to.Add(timeTTLMin)
		if i%timeTellEvery == 0 {
			if err := far.at(i, to); err != nil {
				return outcome{}, err
			}
		}
	}
	bytes := run.count * timeItemBytes
	out := calls.finish(run.count, bytes, bytes)
	out.detail.figure("entries put too late", float64(late))
	return out, nil
}

// judge fails if a read between these moments must not have had this answer.
func (run *timeRun) judge(i uint64, from, to time.Time, found bool) error {
	due, expires := run.due(i)
	if !found && (!expires || to.Add(timeEarlyMax+timeClocksApart).Before(due)) {
		return wrong{"an entry was gone too early"}
	}
	if run.lastDue.After(due) {
		due = run.lastDue
	}
	if found && expires && from.After(due.Add(run.longestPut+timeClocksApart)) {
		return wrong{"an expired entry was found"}
	}
	return nil
}

func (run *timeRun) reads(store Expiring, calls *calls) (outcome, error) {
	rng, reads, hits := generate.NewRng(timeSeed), 0, 0
	var value [generate.EntryValueBytes]byte
	got, found := uint64(0), false
	visit := func(value []byte) { got = generate.Probe(value) }
	for calls.areLeft() {
		i := rng.Below(run.count)
		key := run.entries.Key(i)
		from := time.Now()
		err := calls.call(0, func() (err error) {
			found, err = store.Get(key[:], visit)
			return err
		})
		if err := cmp.Or(err, run.judge(i, from, time.Now(), found)); err != nil {
			return outcome{}, err
		}
		reads++
		if found {
			if err := expect("the value of an entry", got, generate.Probe(run.entries.Value(i, &value))); err != nil {
				return outcome{}, err
			}
			hits++
		}
	}
	out := calls.finish(0, 0, run.lastingBytes())
	out.detail.figure("hit rate", float64(hits)/float64(max(reads, 1)))
	return out, nil
}

// check: the entries that do not expire are there, whole, and no others.
func (run *timeRun) check(store Expiring) error {
	expected := uint64(0)
	var value [generate.EntryValueBytes]byte
	for i := uint64(0); i < run.count; i += generate.EntriesPerLasting {
		key := run.entries.Key(i)
		expected += generate.Checksum(key[:], run.entries.Value(i, &value))
	}
	return checkScan(generate.LastingEntries(run.count), expected, store.Scan)
}
