package lab

// A mix of operations on one thread: crates/esker-bench/src/suites/works/mix.rs in Go. Each operation is
// drawn at random and verified.
//
// The newest version of every item is remembered, so that an old value counts as wrong.

import (
	"cmp"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

// Kinds of operations: their names in results, and their indexes.
var mixedKinds = []string{"read", "scan", "update", "insert", "read-modify-write"}

const (
	kindRead = iota
	kindScan
	kindUpdate
	kindInsert
	kindReadModifyWrite
)

// mixed is a running mix.
type mixed struct {
	*executor
	work
	rng      *generate.Rng
	ask      generate.Distribution
	key, val []byte
	scanned  []scannedItem
	hits     uint64
}

type scannedItem struct {
	key   []byte
	probe uint64
}

func (x *executor) mix(w work, report progress) (end done, err error) {
	x.content.keepVersions()
	began := x.content.to
	m := &mixed{executor: x, work: w, rng: x.rng, ask: generate.Uniform}
	if w.ReadsSeed != nil {
		m.rng = generate.NewRng(*w.ReadsSeed)
	}
	switch {
	case w.Draw.Latest > 0:
		m.ask = generate.NewZipf(w.Draw.Latest).Latest
	case w.Draw.Zipfian > 0 && w.Percent[kindInsert] > 0: // scattered over future inserts as well
		m.ask = generate.NewZipf(w.Draw.Zipfian).Zipfian(began + began/4)
	case w.Draw.Zipfian > 0:
		m.ask = generate.NewZipf(w.Draw.Zipfian).Zipfian(began)
	}
	if w.IsWarmUp {
		return m.warmUp()
	}
	if end, err = m.run(report); err != nil {
		return end, err
	}
	if w.ReadsSeed != nil {
		end.Figures = map[string]float64{"hit rate": float64(m.hits) / float64(max(end.Ops, 1))}
	}
	end.BeganOn, end.LiveBytes = &began, x.content.len()*x.items.itemBytes()
	return end, nil
}

// warmUp reads without recording.
func (m *mixed) warmUp() (end done, err error) {
	for start := time.Now(); end.Ops < m.Budget.Ops && time.Since(start) < m.Budget.Time; end.Ops++ {
		if _, _, err = m.read(); err != nil {
			return end, err
		}
	}
	return end, nil
}

func (m *mixed) run(report progress) (done, error) {
	track := newTrack(mixedKinds, m.Period, m.dir)
	defer track.abandon()
	commits, busy := uint64(0), time.Duration(0)
	for track.ops < m.Budget.Ops && track.elapsed() < m.Budget.Time {
		kind := m.drawKind()
		var from, to time.Time
		var err error
		switch kind {
		case kindRead:
			from, to, err = m.read()
		case kindScan:
			from, to, err = m.scan()
		default:
			commits++
			from, to, err = m.write(kind)
		}
		if err != nil {
			return done{}, err
		}
		busy += to.Sub(from)
		track.record(kind, from, to, 1)
		report(track.ops)
	}
	end := ofCalls(track, busy)
	end.Commits, end.WrittenBytes = commits, commits*m.items.itemBytes()
	return end, nil
}

func (m *mixed) drawKind() int {
	switch {
	case m.ReadsSeed != nil:
		return kindRead
	case m.content.to == 0:
		return kindInsert
	}
	point := m.rng.Below(100)
	for kind, percent := range m.Percent {
		if point < percent {
			return kind
		}
		point -= percent
	}
	panic("the parts of a mix sum up to 100")
}

func (m *mixed) drawItem() uint64 { return m.ask(m.rng, m.content.to) }

func (m *mixed) keyOf(i uint64) []byte {
	m.key = m.items.key(i, m.key)
	return m.key
}

func (m *mixed) expected(i uint64) uint64 {
	if !m.content.has(i) {
		return 0
	}
	return generate.Probe(m.items.value(i, uint64(m.content.versions[i]), &m.val))
}

func (m *mixed) read() (from, to time.Time, err error) {
	i := m.drawItem()
	key := m.keyOf(i)
	got := uint64(0)
	visit := func(value []byte) { got = generate.Probe(value) }
	from = time.Now()
	found, err := m.store.Get(key, visit)
	to = time.Now()
	if found {
		m.hits++
	}
	return from, to, cmp.Or(err, expect("the value that a get returned", got, m.expected(i)))
}

func (m *mixed) scan() (from, to time.Time, err error) {
	first := m.keyOf(m.drawItem())
	limit := m.ScanItems
	if m.ScanIsUniform {
		limit = 1 + m.rng.Below(m.ScanItems)
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
		i, ok := m.items.item(item.key)
		if !ok || i >= m.content.to {
			return wrong{"a scan showed a key never written"}
		}
		if err := expect("a value in a scan", item.probe, m.expected(i)); err != nil {
			return err
		}
	}
	return nil
}

func (m *mixed) write(kind int) (from, to time.Time, err error) {
	i, version, before, got := m.content.to, uint64(0), uint64(0), uint64(0)
	if kind != kindInsert {
		i = m.drawItem()
		version = uint64(m.content.versions[i]) + 1
	}
	if kind == kindReadModifyWrite {
		before = m.expected(i)
	}
	key := m.keyOf(i)
	value := m.items.value(i, version, &m.val)
	visit := func(value []byte) { got = generate.Probe(value) }
	put := func(w Writer) error { return w.Put(key, value) }
	from = time.Now()
	if kind == kindReadModifyWrite {
		if _, err = m.store.Get(key, visit); err != nil {
			return from, from, err
		}
	}
	err = m.store.Write(put)
	to = time.Now()
	if kind == kindInsert {
		m.content.versions = append(m.content.versions, 0)
		m.content.to++
	} else {
		m.content.versions[i] = uint32(version)
	}
	return from, to, cmp.Or(err, expect("the value read before it was modified", got, before))
}
