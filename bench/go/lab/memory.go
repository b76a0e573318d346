package lab

// An engine without files, for tests of the lab itself.

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is an engine of a map. What the suites do on it, and how often, is held against the Rust side; with Flips it is an engine that must fail:
// it flips a byte in one value of ten.
type Memory struct{ Flips bool }

func (Memory) Name() string             { return "memory" }
func (Memory) Module() string           { return "" }
func (Memory) Isolation() string        { return "serializable" }
func (Memory) AsyncCommits() *AsyncMode { return &AsyncMode{Reached: InProcess} }
func (Memory) Options() []Option        { return nil }
func (Memory) Cannot(Feature) string    { return "" }

// A database lives on in its directory's name, for suites that close it and open it again.
var memoryDatabases = map[string]*memoryStore{}

func (e Memory) Open(dir string, _ OpenOptions) (Store, error) {
	store, found := memoryDatabases[dir]
	if !found {
		store = &memoryStore{values: map[string][]byte{}, due: map[string]time.Time{}, flips: e.Flips}
		memoryDatabases[dir] = store
	}
	return store, nil
}

func (Memory) TransactionKinds() []TransactionKind { return []TransactionKind{OneWriter} }

func (e Memory) OpenTransactions(dir string, options OpenOptions, _ TransactionKind) (Transactions, error) {
	store, err := e.Open(dir, options)
	return memoryTransactions{store.(*memoryStore)}, err
}

type memoryTransactions struct{ *memoryStore }

// Transact is undone if work fails.
func (m memoryTransactions) Transact(_ [][]byte, work func(Transaction) error) (uint64, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	before := maps.Clone(m.values)
	m.sorted = nil
	err := work(memoryTransaction(m))
	if err != nil {
		m.values = before
	}
	return 0, err
}

func (m memoryTransactions) Scan(visit func(key, value []byte)) (uint64, error) {
	return m.Range(nil, ^uint64(0), visit)
}

// memoryTransaction has the lock.
type memoryTransaction struct{ *memoryStore }

func (m memoryTransaction) Get(key []byte, visit func([]byte)) (bool, error) {
	value, found := m.values[string(key)]
	if found {
		m.show(value, visit)
	}
	return found, nil
}

func (e Memory) OpenExpiring(dir string, options OpenOptions) (Expiring, error) {
	store, err := e.Open(dir, options)
	return memoryExpiring{store.(*memoryStore)}, err
}

type memoryExpiring struct{ *memoryStore }

func (m memoryExpiring) PutFor(key, value []byte, ttl time.Duration) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.sorted = nil
	if delete(m.due, string(key)); ttl > 0 {
		m.due[string(key)] = time.Now().Add(ttl)
	}
	return m.Put(key, value)
}

func (m memoryExpiring) Get(key []byte, visit func([]byte)) (bool, error) {
	m.sweep()
	return m.memoryStore.Get(key, visit)
}

func (m memoryExpiring) Scan(visit func(key, value []byte)) (uint64, error) {
	m.sweep()
	return m.Range(nil, ^uint64(0), visit)
}

// sweep removes what has expired.
func (m memoryExpiring) sweep() {
	m.lock.Lock()
	defer m.lock.Unlock()
	for key, due := range m.due {
		if !due.After(time.Now()) {
			delete(m.due, key)
			delete(m.values, key)
			m.sorted = nil
		}
	}
}

type memoryStore struct {
	lock   sync.Mutex
	values map[string][]byte
	due    map[string]time.Time // when entries expire that do
	sorted []string             // nil after a write
	flips  bool
	reads  int
}

func (s *memoryStore) SetDurability(Durability) error { return nil }
func (s *memoryStore) Compact() error                 { return nil }
func (s *memoryStore) Reopen() error                  { return nil }
func (s *memoryStore) Drain(time.Time) error          { return nil }
func (s *memoryStore) Close() error                   { return nil }
func (s *memoryStore) Len() (uint64, error)           { return uint64(len(s.values)), nil }
func (s *memoryStore) Remove(key []byte) error        { delete(s.values, string(key)); return nil }

// Reader copies everything: a snapshot.
func (s *memoryStore) Reader() (Reader, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return &memoryStore{values: maps.Clone(s.values), flips: s.flips}, nil
}

func (s *memoryStore) Write(work func(Writer) error) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.sorted = nil
	return work(s)
}
func (s *memoryStore) Put(key, value []byte) error {
	s.values[string(key)] = bytes.Clone(value)
	return nil
}
func (s *memoryStore) show(value []byte, visit func([]byte)) {
	if s.reads++; s.flips && s.reads%10 == 1 {
		value = bytes.Clone(value)
		// Never the same bits: two equal flips may cancel in a sum.
		value[len(value)-1] ^= byte(s.reads)
	}
	visit(value)
}

func (s *memoryStore) Get(key []byte, visit func([]byte)) (bool, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	value, found := s.values[string(key)]
	if found {
		s.show(value, visit)
	}
	return found, nil
}

func (s *memoryStore) Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.sorted == nil {
		s.sorted = slices.Sorted(maps.Keys(s.values))
	}
	first, _ := slices.BinarySearch(s.sorted, string(from))
	seen := uint64(0)
	for _, key := range s.sorted[first:] {
		s.show(s.values[key], func(value []byte) { visit([]byte(key), value) })
		if seen++; seen == limit {
			break
		}
	}
	return seen, nil
}

func (s *memoryStore) Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error) {
	return s.Range(from, limit, func(key, _ []byte) { visit(key) })
}
