package lab

// A mix of operations on one thread, each drawn at random and each verified: crates/esker-bench/src/suites/mixed.rs in Go.
//
// MX1. Only the engine's call is between the two looks at the clock; drawing, making values and closures, and verifying are not. The value of
//      the row is operations over the time within calls: what the harness costs differs by language. The rate over all of the time
//      stands beside it as a figure.
// MX2. The newest version of every record is remembered, so that an old answer is as wrong as none.

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

// Kinds of operations, as they stand in results, and their indexes.
var mixedKinds = []string{"read", "scan", "update", "insert", "read-modify-write"}

const (
	kindRead = iota
	kindScan
	kindUpdate
	kindInsert
	kindReadModifyWrite
)

// records are items with versions.
type records interface {
	key(i uint64, key []byte) []byte // fills key, of the right length
	item(key []byte) (uint64, bool)
	fill(i, version uint64, value []byte) // fills value, of the right length
	lengths() (keyBytes, valueBytes int)
}

type mix struct {
	percent       [5]uint64 // of each kind
	ask           generate.Distribution
	scanItems     uint64 // items of a scan, or the most
	scanIsUniform bool   // whether their number is drawn, from 1 to scanItems
}

// insertsOnly is the mix of a load.
var insertsOnly = mix{percent: [5]uint64{0, 0, 0, 100, 0}, ask: generate.Uniform}

// budget says when a mix ends: when either is reached.
type budget struct {
	time time.Duration
	ops  uint64
}

func operations(ops uint64) budget { return budget{math.MaxInt64, ops} }

// budgetOf is the time that a row of this scale takes. A test does testOps and no more, so that a traced run and an untraced one do the same.
func budgetOf(scale string, testOps uint64) budget {
	switch scale {
	case "test":
		return operations(testOps)
	case "quick":
		return budget{2 * time.Second, math.MaxUint64}
	case "seed":
		return budget{20 * time.Second, math.MaxUint64}
	}
	return budget{300 * time.Second, math.MaxUint64}
}

// period is the time over which a point of the row's curves is a mean.
func (b budget) period() time.Duration {
	return min(max(b.time/60, 100*time.Millisecond), 5*time.Second)
}

// mixed is the state of a mix on one store; rows that follow each other on one store share it.
type mixed struct {
	records
	store    Store
	rng      *generate.Rng
	dir      string
	versions []uint32 // MX2
	key, val []byte
	scanned  []scannedItem
}

type scannedItem struct {
	key   []byte
	probe uint64
}

func newMixed(items records, store Store, seed uint64, dir string) *mixed {
	keyBytes, valueBytes := items.lengths()
	return &mixed{
		records: items, store: store, rng: generate.NewRng(seed), dir: dir, key: make([]byte, keyBytes), val: make([]byte, valueBytes),
	}
}

func (m *mixed) itemBytes() uint64 { return uint64(len(m.key) + len(m.val)) }

func (m *mixed) keyOf(i uint64) []byte { return m.records.key(i, m.key) }

// load adds items in transactions of batch, or of what the engine takes if that is less.
func (m *mixed) load(items, batch uint64, far *howFar) error {
	for end := uint64(len(m.versions)) + items; uint64(len(m.versions)) < end; {
		first := uint64(len(m.versions))
		next := min(first+batch, end)
		err := m.store.Write(func(w Writer) error {
			for i := first; i < next; i++ {
				m.fill(i, 0, m.val)
				if err := w.Put(m.keyOf(i), m.val); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, ErrTooLarge) && batch > 1:
			batch /= 2
			continue
		case err != nil:
			return err
		}
		m.versions = append(m.versions, make([]uint32, next-first)...)
		if err := far.at(next, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over the first items, which were loaded before.
func (m *mixed) adopt(items uint64) { m.versions = make([]uint32, items) }

// items says how many there are.
func (m *mixed) items() uint64 { return uint64(len(m.versions)) }

func (m *mixed) run(mix mix, budget budget, period time.Duration) (outcome, error) {
	return m.runTelling(mix, budget, period, nil)
}

// warmUp reads items at random, untimed, until the budget ends, and says how many. They are drawn from a sequence of their own, so that the rows draw
// what they draw without it.
func (m *mixed) warmUp(seed uint64, ask generate.Distribution, budget budget) (reads uint64, err error) {
	ofRows := m.rng
	m.rng = generate.NewRng(seed)
	defer func() { m.rng = ofRows }()
	for start := time.Now(); reads < budget.ops && time.Since(start) < budget.time; reads++ {
		if _, _, err = m.read(ask); err != nil {
			return reads, err
		}
	}
	return reads, nil
}

func (m *mixed) runTelling(mix mix, budget budget, period time.Duration, far *howFar) (outcome, error) {
	track := newTrack(mixedKinds, period, m.dir)
	defer track.abandon()
	items, commits, busy := uint64(len(m.versions)), uint64(0), time.Duration(0)
	for track.ops < budget.ops && track.elapsed() < budget.time {
		kind := kindInsert
		if len(m.versions) > 0 {
			kind = m.drawKind(mix)
		}
		var from, to time.Time
		var err error
		switch kind {
		case kindRead:
			from, to, err = m.read(mix.ask)
		case kindScan:
			from, to, err = m.scan(mix)
		default:
			commits++
			from, to, err = m.write(kind, mix.ask)
		}
		if err != nil {
			return outcome{}, err
		}
		busy += to.Sub(from)
		track.record(kind, from, to, 1)
		if err := far.at(track.ops, to); err != nil {
			return outcome{}, err
		}
	}
	wall := track.elapsed().Seconds()
	detail := track.finish("closed")
	detail.figure("wall ops/s", float64(track.ops)/wall)
	out := outcome{
		seconds: busy.Seconds(), ops: track.ops, commits: commits, userWrittenBytes: commits * m.itemBytes(),
		liveBytes: uint64(len(m.versions)) * m.itemBytes(), detail: detail,
	}
	return out.on(items), nil
}

func (m *mixed) drawKind(mix mix) int {
	point := m.rng.Below(100)
	for kind, percent := range mix.percent {
		if point < percent {
			return kind
		}
		point -= percent
	}
	panic("the parts of a mix sum up to 100")
}

func (m *mixed) drawItem(ask generate.Distribution) uint64 {
	return ask(m.rng, uint64(len(m.versions)))
}

func (m *mixed) expected(i uint64) uint64 {
	m.fill(i, uint64(m.versions[i]), m.val)
	return generate.Probe(m.val)
}

func (m *mixed) read(ask generate.Distribution) (from, to time.Time, err error) {
	i := m.drawItem(ask)
	key := m.keyOf(i)
	got := uint64(0)
	visit := func(value []byte) { got = generate.Probe(value) }
	from = time.Now()
	_, err = m.store.Get(key, visit)
	to = time.Now()
	return from, to, cmp.Or(err, expect("the value that a get returned", got, m.expected(i)))
}

func (m *mixed) scan(mix mix) (from, to time.Time, err error) {
	first := m.keyOf(m.drawItem(mix.ask))
	limit := mix.scanItems
	if mix.scanIsUniform {
		limit = 1 + m.rng.Below(mix.scanItems)
	}
	seen := 0
	visit := func(key, value []byte) {
		if seen == len(m.scanned) {
			m.scanned = append(m.scanned, scannedItem{})
		}
		slot := &m.scanned[seen]
		slot.key = append(slot.key[:0], key...)
		slot.probe = generate.Probe(value)
		seen++
	}
	from = time.Now()
	_, err = m.store.Range(first, limit, visit)
	to = time.Now()
	if err != nil {
		return from, to, err
	}
	return from, to, m.checkScan(first, m.scanned[:seen])
}

func (m *mixed) checkScan(first []byte, scanned []scannedItem) error {
	if len(scanned) == 0 || !slices.Equal(scanned[0].key, first) {
		return wrong{"a scan did not begin with the key that it was to begin with"}
	}
	for n, item := range scanned {
		if n > 0 && slices.Compare(scanned[n-1].key, item.key) >= 0 {
			return wrong{"a scan was not in key order"}
		}
		i, ok := m.item(item.key)
		if !ok || i >= uint64(len(m.versions)) {
			return wrong{"a scan showed a key never written"}
		}
		if err := expect("a value in a scan", item.probe, m.expected(i)); err != nil {
			return err
		}
	}
	return nil
}

func (m *mixed) write(kind int, ask generate.Distribution) (from, to time.Time, err error) {
	i, version, before, got := uint64(len(m.versions)), uint64(0), uint64(0), uint64(0)
	if kind != kindInsert {
		i = m.drawItem(ask)
		version = uint64(m.versions[i]) + 1
	}
	if kind == kindReadModifyWrite {
		before = m.expected(i)
	}
	key := m.keyOf(i)
	m.fill(i, version, m.val)
	visit := func(value []byte) { got = generate.Probe(value) }
	put := func(w Writer) error { return w.Put(key, m.val) }
	from = time.Now()
	if kind == kindReadModifyWrite {
		if _, err = m.store.Get(key, visit); err != nil {
			return from, from, err
		}
	}
	err = m.store.Write(put)
	to = time.Now()
	if kind == kindInsert {
		m.versions = append(m.versions, 0)
	} else {
		m.versions[i] = uint32(version)
	}
	return from, to, cmp.Or(err, expect("the value read before it was modified", got, before))
}

// fullCheck compares every byte of the store with what must be there.
func (m *mixed) fullCheck() error {
	expected := uint64(0)
	for i, version := range m.versions {
		m.fill(uint64(i), uint64(version), m.val)
		expected += generate.Checksum(m.keyOf(uint64(i)), m.val)
	}
	return withReader(m.store, func(reader Reader) error { return fullScan(reader, uint64(len(m.versions)), expected) })
}
