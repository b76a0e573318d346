package lab

// Does the work of rows. crates/esker-bench/src/suites/plan.rs says what each kind of work does; works/
// beside it does the same in Rust.
//
// Only calls of the engine are between two looks at the clock. Drawing, making values and verifying are not.
// Where a loop is timed as a whole, its answers are summed up, and compared after the clock has stopped.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"esker.invalid/bench/generate"
)

// budget ends work when either limit is reached.
type budget struct {
	Time time.Duration `json:"ns"`
	Ops  uint64        `json:"ops"`
}

// period returns the length of a period of the row's curves.
func (b budget) period() time.Duration {
	return min(max(b.Time/60, 100*time.Millisecond), 5*time.Second)
}

// draw is how a mix draws items: uniform, or with the exponent of one of the two distributions.
type draw struct{ Zipfian, Latest float64 }

func (d *draw) UnmarshalJSON(text []byte) error {
	if text[0] == '"' { // "uniform"
		return nil
	}
	type exponents draw
	return json.Unmarshal(text, (*exponents)(d))
}

// work has the fields of all kinds of work.
type work struct {
	Do            string        `json:"do"`
	Count         uint64        `json:"count"`
	Size          uint64        `json:"size"`
	Below         uint64        `json:"below"`
	Period        time.Duration `json:"period_ns"`
	Threads       uint64        `json:"threads"`
	KeysAhead     bool          `json:"keys_ahead"`
	Every         uint64        `json:"every"`
	Limit         uint64        `json:"limit"`
	KeysOnly      bool          `json:"keys_only"`
	Percent       [5]uint64     `json:"percent"`
	Draw          draw          `json:"draw"`
	ScanItems     uint64        `json:"scan_items"`
	ScanIsUniform bool          `json:"scan_is_uniform"`
	Budget        budget        `json:"budget"`
	ReadsSeed     *uint64       `json:"reads_seed"`
	IsWarmUp      bool          `json:"is_warm_up"`
	Pairs         uint64        `json:"pairs"`
	Concurrency   uint64        `json:"concurrency"`
	Multi         uint64        `json:"multi"`
	Rate          float64       `json:"rate"`
	Keys          uint64        `json:"keys"`
	Set           uint64        `json:"set"`
	Writers       uint64        `json:"writers"`
	HoldMs        uint64        `json:"hold_ms"`
	SpreadMs      uint64        `json:"spread_ms"`
	Ms            uint64        `json:"ms"`
	Swept         bool          `json:"swept"`
}

// done is the result of work.
type done struct {
	Seconds      float64            `json:"seconds"`
	Ops          uint64             `json:"ops"` // 0 if the plan has their number
	Commits      uint64             `json:"commits"`
	WrittenBytes uint64             `json:"written_bytes"`
	LiveBytes    uint64             `json:"live_bytes"`
	Sum          uint64             `json:"sum"`      // of the values that gets or ranges found
	BeganOn      *uint64            `json:"began_on"` // number of items at the start
	Figures      map[string]float64 `json:"figures,omitempty"`
	Detail       *detail            `json:"detail"`
	Note         string             `json:"note"`
	Void         string             `json:"void,omitempty"` // why the row has no value, although the work was done
}

// ofCalls ends a loop of calls. Its rate is over the time within the calls. The rate over the wall clock is a
// figure beside it.
func ofCalls(t *track, busy time.Duration) done {
	wall := t.elapsed().Seconds()
	detail := t.finish("closed")
	detail.figure("wall ops/s", float64(t.ops)/wall)
	return done{Seconds: busy.Seconds(), Ops: t.ops, Detail: detail}
}

// calls times calls of the engine, each between two looks at the clock.
type calls struct {
	track  *track
	busy   time.Duration
	budget budget
}

func newCalls(kinds []string, budget budget, dir string) *calls {
	return &calls{track: newTrack(kinds, budget.period(), dir), budget: budget}
}

func (c *calls) areLeft() bool {
	return c.track.ops < c.budget.Ops && c.track.elapsed() < c.budget.Time
}

func (c *calls) call(kind int, call func() error) error { return c.callFor(kind, 1, call) }

// callFor makes one call that does ops operations.
func (c *calls) callFor(kind int, ops uint64, call func() error) error {
	from := time.Now()
	err := call()
	to := time.Now()
	if err != nil {
		return err
	}
	c.busy += to.Sub(from)
	c.track.record(kind, from, to, ops)
	return nil
}

func (c *calls) finish(commits, writtenBytes, liveBytes uint64) done {
	end := ofCalls(c.track, c.busy)
	end.Commits, end.WrittenBytes, end.LiveBytes = commits, writtenBytes, liveBytes
	return end
}

// progress receives the number of items done so far.
type progress func(done uint64)

// onStore does work on a store.
func (x *executor) onStore(w work, report progress) (done, error) {
	switch w.Do {
	case "put":
		return x.put(w, report)
	case "remove":
		return x.removeHalf()
	case "len":
		return x.length()
	case "gets":
		return x.gets(w)
	case "ranges":
		return x.ranges(w)
	case "scan":
		return x.scan(w)
	case "mix":
		return x.mix(w, report)
	case "drive":
		return x.drive(w)
	case "requests":
		return x.requests(w)
	case "queue":
		return x.queue(w.Budget)
	case "replace":
		return x.replace(w.Budget)
	case "check":
		return done{}, withReader(x.store, x.check)
	}
	return done{}, fmt.Errorf("not the work of a store: %s", w.Do)
}

// liveBytes returns the bytes of all live keys and values.
func (x *executor) liveBytes() uint64 {
	large := x.content.len()
	if x.items.Kind == "large" { // followed by the small items of suite redb
		large = x.items.Number
	}
	return large*x.items.itemBytes() + (x.content.len()-large)*(generate.ItemKeyBytes+generate.ItemValueBytes)
}

// transactionStep is the number of items in a transaction where the engine cannot take all of them.
const transactionStep = 1000

// split returns the size of transactions, and why it differs from the size in the plan.
func (x *executor) split(size uint64) (uint64, string) {
	if why := x.engine.Cannot(LargeTransactions); why != "" && size > transactionStep {
		return transactionStep, why
	}
	return size, ""
}

func void(why string, seconds float64) string {
	if why == "" {
		return ""
	}
	return fmt.Sprintf("%s; the same items in transactions of %d took %.3f s", why, transactionStep, seconds)
}

func (x *executor) put(w work, report progress) (end done, err error) {
	size, why := x.split(w.Size)
	draws, drawn := generate.NewRng(x.items.Seed^0xBAD6E400), []uint64{}
	if w.Below > 0 {
		x.content.to, x.content.bits = w.Below, make([]uint64, (w.Below+63)/64)
	}
	var t *track
	if w.Period > 0 {
		t = newTrack([]string{"write"}, w.Period, x.dir)
		defer t.abandon()
	}
	first := x.content.to
	var key, value []byte
	start := time.Now()
	for put := uint64(0); put < w.Count; {
		next := min(size, w.Count-put)
		if w.Below > 0 {
			drawn = drawn[:0]
			for range next {
				drawn = append(drawn, draws.Below(w.Below))
			}
		}
		number := func(j uint64) uint64 {
			if w.Below > 0 {
				return drawn[j]
			}
			return first + put + j
		}
		from := time.Now()
		err := x.writeAll(0, next, size <= transactionStep, func(writer Writer, j, end uint64) error {
			for ; j < end; j++ {
				key = x.items.key(number(j), key)
				if err := writer.Put(key, x.items.value(number(j), 0, &value)); err != nil {
					return err
				}
			}
			return nil
		})
		to := time.Now()
		if errors.Is(err, ErrTooLarge) && size > transactionStep {
			size, why = transactionStep, ErrTooLarge.Error()
			continue
		}
		if err != nil {
			return end, err
		}
		if t != nil {
			t.record(0, from, to, next)
		}
		for _, i := range drawn {
			x.content.set(i, true)
		}
		put += next
		report(put)
	}
	end.Seconds = time.Since(start).Seconds()
	end.WrittenBytes = w.Count * x.items.itemBytes()
	if w.Below == 0 {
		x.content.to = first + w.Count
	}
	if end.LiveBytes = x.liveBytes(); first == 0 {
		end.WrittenBytes = end.LiveBytes
	}
	if t != nil {
		end.Detail = t.finish("closed")
	}
	end.Void = void(why, end.Seconds)
	return end, nil
}

// writeAll writes the items with these numbers in one transaction. If the engine finds that too large and
// inHalves allows it, the items are written in halves.
func (x *executor) writeAll(from, to uint64, inHalves bool, write func(w Writer, from, to uint64) error) error {
	err := x.store.Write(func(w Writer) error { return write(w, from, to) })
	if middle := (from + to) / 2; inHalves && middle > from && errors.Is(err, ErrTooLarge) {
		err = x.writeAll(from, middle, inHalves, write)
		if err == nil {
			err = x.writeAll(middle, to, inHalves, write)
		}
	}
	return err
}

func (x *executor) removeHalf() (end done, err error) {
	all := x.content.to
	count, order := all/2, generate.NewOrder(all, all/3)
	size, why := x.split(count)
	var key []byte
	start := time.Now()
	for from := uint64(0); from < count; from += size {
		err := x.store.Write(func(writer Writer) error {
			numbers := order.SkipTo(from)
			for range min(size, count-from) {
				key = x.items.key(numbers.Take(), key)
				if err := writer.Remove(key); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, ErrTooLarge) && size > transactionStep {
			size, why = transactionStep, ErrTooLarge.Error()
			from -= size
			continue
		}
		if err != nil {
			return end, err
		}
	}
	end.Seconds = time.Since(start).Seconds()
	for range count {
		x.content.set(order.Take(), false)
	}
	end.Void = void(why, end.Seconds)
	return end, nil
}

func (x *executor) length() (end done, err error) {
	err = withReader(x.store, func(reader Reader) error {
		start := time.Now()
		length, err := reader.Len()
		end.Seconds = time.Since(start).Seconds()
		return cmp.Or(err, expect("number of items", length, x.content.len()))
	})
	return end, err
}

// cacheLine is the size of a line of the processor's cache. What a thread writes for each operation has a
// line of its own, so that threads do not slow each other down.
const cacheLine = 64

// keys makes the keys of numbers: each when it is needed, or all in advance. Making a URL takes longer than
// finding it.
type keys struct {
	items  *items
	buffer []byte
	ahead  []byte
	ends   []int // in ahead; nil if keys are made when they are needed
	next   int
}

// newKeys makes count keys of numbers in advance if ahead is set.
func newKeys(items *items, ahead bool, numbers func() uint64, count uint64) keys {
	made := keys{items: items, buffer: make([]byte, 0, cacheLine)}
	if ahead {
		made.ends = make([]int, 1, count+1)
		for range count {
			made.buffer = items.key(numbers(), made.buffer)
			made.ahead = append(made.ahead, made.buffer...)
			made.ends = append(made.ends, len(made.ahead))
		}
	}
	return made
}

// take returns the key of number i, which is the next number.
func (k *keys) take(i uint64) []byte {
	if k.ends == nil {
		k.buffer = k.items.key(i, k.buffer)
		return k.buffer
	}
	k.next++
	return k.ahead[k.ends[k.next-1]:k.ends[k.next]]
}

// sumOfGets sums the values of count items in order. A missing key shows as a wrong sum.
func sumOfGets(reader Reader, keys keys, order generate.Order, count uint64) (uint64, error) {
	var total struct {
		sum uint64
		_   [cacheLine - 8]byte
	}
	visit := func(value []byte) { total.sum += generate.Probe(value) }
	for range count {
		if _, err := reader.Get(keys.take(order.Take()), visit); err != nil {
			return 0, err
		}
	}
	return total.sum, nil
}

func (x *executor) gets(w work) (end done, err error) {
	order := generate.NewOrder(x.content.to, 0)
	if w.Threads > 1 {
		return x.getsOnThreads(order, w.Threads)
	}
	ahead := order
	keys := newKeys(x.items, w.KeysAhead, ahead.Take, w.Count)
	end.LiveBytes = x.liveBytes()
	err = withReader(x.store, func(reader Reader) (err error) {
		start := time.Now()
		end.Sum, err = sumOfGets(reader, keys, order, w.Count)
		end.Seconds = time.Since(start).Seconds()
		return err
	})
	return end, err
}

// getsOnThreads reads all items, divided over threads.
func (x *executor) getsOnThreads(order generate.Order, threads uint64) (end done, err error) {
	all := x.content.to
	errs, sums := make([]error, threads), make([]uint64, threads)
	begin := make(chan struct{})
	var readers sync.WaitGroup
	for thread := range threads {
		from, to := all*thread/threads, all*(thread+1)/threads
		readers.Go(func() {
			<-begin
			errs[thread] = withReader(x.store, func(reader Reader) (err error) {
				keys := newKeys(x.items, false, nil, 0)
				sums[thread], err = sumOfGets(reader, keys, order.SkipTo(from), to-from)
				return err
			})
		})
	}
	start := time.Now()
	close(begin)
	readers.Wait()
	end.Seconds = time.Since(start).Seconds()
	for _, sum := range sums {
		end.Sum += sum
	}
	return end, errors.Join(errs...)
}

func (x *executor) ranges(w work) (end done, err error) {
	order := generate.NewOrder(x.content.to, 0)
	every := func(order *generate.Order) func() uint64 {
		return func() uint64 {
			i := order.Take()
			*order = order.SkipTo(w.Every - 1)
			return i
		}
	}
	ahead := order
	keys, number := newKeys(x.items, w.KeysAhead, every(&ahead), w.Count), every(&order)
	if w.Every == 1 {
		number = order.Take
	}
	end.LiveBytes = x.liveBytes()
	err = withReader(x.store, func(reader Reader) error {
		acc := uint64(0)
		visit := func(key, value []byte) {
			acc = bits.RotateLeft64(acc, 7) ^ generate.Probe(key) ^ generate.Probe(value)
		}
		start := time.Now()
		for range w.Count {
			acc = 0
			if _, err := reader.Range(keys.take(number()), w.Limit, visit); err != nil {
				return err
			}
			end.Sum += acc
		}
		end.Seconds = time.Since(start).Seconds()
		return nil
	})
	return end, err
}

func (x *executor) scan(w work) (end done, err error) {
	sum := uint64(0)
	of, what := func(key, value []byte) uint64 {
		return bits.RotateLeft64(generate.Probe(key), 1) ^ generate.Probe(value)
	}, "sum of the items"
	start := time.Now()
	if w.KeysOnly {
		of, what = func(key, _ []byte) uint64 { return generate.Probe(key) }, "sum of the keys"
		err = withReader(x.store, func(reader Reader) (err error) {
			end.Ops, err = reader.Keys(nil, w.Limit, func(key []byte) { sum += generate.Probe(key) })
			return err
		})
	} else {
		end.Ops, err = x.store.Range(nil, w.Limit, func(key, value []byte) { sum += of(key, value) })
	}
	end.Seconds, end.LiveBytes = time.Since(start).Seconds(), x.liveBytes()
	return end, cmp.Or(err, expect(what, sum, x.content.sum(x.items, w.Limit, of)))
}

// check compares every byte with the expected content.
func (x *executor) check(reader Reader) error {
	count, expected := x.content.len(), uint64(0)
	if x.items.Kind == "hotspots" {
		count, expected = x.hotspots()
	} else {
		expected = x.content.sum(x.items, ^uint64(0), generate.Checksum)
	}
	switch x.items.Kind {
	case "items", "ints", "sequential", "random", "hotspots": // for other kinds a count may take as long as the scan
		length, err := reader.Len()
		if err := cmp.Or(err, expect("number of items by len()", length, count)); err != nil {
			return err
		}
	}
	return fullScan(reader, count, expected)
}

// expect compares an answer of the engine with the generator's.
func expect(what string, got, expected uint64) error {
	if got != expected {
		return wrong{fmt.Sprintf("%s: %d, not %d", what, got, expected)}
	}
	return nil
}

// fullScan reads everything and compares every byte with the expected content: count items, with this sum of
// their checksums.
func fullScan(reader Reader, count, expected uint64) error {
	return checkScan(count, expected, func(visit func(key, value []byte)) (uint64, error) {
		return reader.Range(nil, ^uint64(0), visit)
	})
}

// checkScan does the same for the items that scan shows.
func checkScan(count, expected uint64, scan func(visit func(key, value []byte)) (uint64, error)) error {
	sum, sorted := uint64(0), true
	var previous []byte
	seen, err := scan(func(key, value []byte) {
		sum += generate.Checksum(key, value)
		sorted = sorted && slices.Compare(previous, key) < 0
		previous = append(previous[:0], key...)
	})
	err = cmp.Or(err, expect("number of items in a full scan", seen, count), expect("checksum of a full scan", sum, expected))
	if err == nil && !sorted {
		err = wrong{"a full scan was not in key order"}
	}
	return err
}

// withReader runs read on a snapshot.
func withReader(store Store, read func(Reader) error) error {
	reader, err := store.Reader()
	if err != nil {
		return err
	}
	err = read(reader)
	if closeErr := reader.Close(); err == nil {
		err = closeErr
	}
	return err
}
