package lab

// Every suite at the smallest scale on a map in memory, and on one that must fail: it flips a byte in one value of ten.

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"esker.invalid/bench/generate"
)

type memoryEngine struct{ flips bool }

func (memoryEngine) Name() string          { return "memory" }
func (memoryEngine) Module() string        { return "" }
func (memoryEngine) Isolation() string     { return "serializable" }
func (memoryEngine) Options() []Option     { return nil }
func (memoryEngine) Cannot(Feature) string { return "" }

// A database lives on in its directory's name, for suites that close it and open it again.
var memoryDatabases = map[string]*memoryStore{}

func (e memoryEngine) Open(dir string, _ OpenOptions) (Store, error) {
	store, found := memoryDatabases[dir]
	if !found {
		store = &memoryStore{values: map[string][]byte{}, flips: e.flips}
		memoryDatabases[dir] = store
	}
	return store, nil
}

type memoryStore struct {
	lock   sync.Mutex
	values map[string][]byte
	sorted []string // nil after a write
	flips  bool
	reads  int
}

func (s *memoryStore) SetDurability(Durability) error { return nil }
func (s *memoryStore) Reader() (Reader, error)        { return s, nil }
func (s *memoryStore) Compact() error                 { return nil }
func (s *memoryStore) Drain() error                   { return nil }
func (s *memoryStore) Close() error                   { return nil }
func (s *memoryStore) Len() (uint64, error)           { return uint64(len(s.values)), nil }
func (s *memoryStore) Remove(key []byte) error        { delete(s.values, string(key)); return nil }
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
		value[len(value)-1] ^= 1
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

// groupOf runs one group of a suite and gives its records.
func groupOf(t *testing.T, suite Suite, group int, engine Engine) []record {
	t.Helper()
	out := &bytes.Buffer{}
	rows := slices.DeleteFunc(suite.Rows("test"), func(row Row) bool { return row.Group != group })
	count := len(rows)
	r := &Recorder{rows: rows, dir: t.TempDir(), out: out}
	if err := suite.Run(engine, "test", group, r); err != nil {
		t.Fatal(suite.Name(), group, err)
	}
	if err := r.finish(); err != nil {
		t.Fatal(suite.Name(), group, err)
	}
	var records []record
	for line := range strings.Lines(out.String()) {
		var message struct{ Row *record }
		if json.Unmarshal([]byte(line), &message) == nil && message.Row != nil {
			records = append(records, *message.Row)
		}
	}
	if len(records) != count {
		t.Fatalf("%s: %d rows of %d", suite.Name(), len(records), count)
	}
	return records
}

func eachGroup(visit func(suite Suite, group int)) {
	for _, suite := range Suites {
		groups := 0
		for _, row := range suite.Rows("test") {
			groups = max(groups, row.Group+1)
		}
		for group := range groups {
			visit(suite, group)
		}
	}
}

// The process that writes for suite open has no part in these tests: its work is done here.
func init() {
	writeElsewhere = func(engine Engine, dir string, count uint64, end string) error {
		_, err := openWrite(engine, dir, count, end)
		return err
	}
}

func isNotHome(rec record) bool { return strings.Contains(rec.Error, recordsNotHome) }

func TestEveryRowHasAValue(t *testing.T) {
	eachGroup(func(suite Suite, group int) {
		for _, rec := range groupOf(t, suite, group, memoryEngine{}) {
			isSize := rec.Unit == "bytes" // a map in memory has no files
			if isNotHome(rec) {
				continue
			}
			cold := strings.Contains(rec.Row, "cold")
			if rec.Error != "" && !cold || rec.Value == nil && !cold || rec.Value != nil && *rec.Value <= 0 && !isSize {
				t.Errorf("%s, %s: %v %s", suite.Name(), rec.Row, rec.Value, rec.Error)
			}
		}
	})
}

func TestCanaryAWrongValueFailsItsRow(t *testing.T) {
	eachGroup(func(suite Suite, group int) {
		wrongRows := 0
		records := groupOf(t, suite, group, memoryEngine{flips: true})
		if isNotHome(records[0]) {
			return
		}
		for _, rec := range records {
			if strings.HasPrefix(rec.Error, "wrong answer: ") {
				wrongRows++
				if rec.Value != nil {
					t.Errorf("%s, %s has an error and a value", suite.Name(), rec.Row)
				}
			}
		}
		if wrongRows == 0 {
			t.Errorf("%s, group %d: a flipped byte went unseen", suite.Name(), group)
		}
	})
}

// narrowStore takes no more than so many items in a transaction.
type narrowStore struct {
	*memoryStore
	most int
}

func (s narrowStore) Write(work func(Writer) error) error {
	counted := &memoryStore{values: map[string][]byte{}}
	if err := work(counted); err != nil {
		return err
	}
	if len(counted.values) > s.most {
		return ErrTooLarge
	}
	return s.memoryStore.Write(work)
}

func TestALoadFindsTheTransactionsThatAnEngineTakes(t *testing.T) {
	store := narrowStore{&memoryStore{values: map[string][]byte{}}, 30}
	items := storageItems{generate.StorageItems{Seed: 1}, 16}
	run := newMixed(items, store, 1, t.TempDir())
	if err := run.load(250, 100); err != nil {
		t.Fatal(err)
	}
	if err := run.fullCheck(); err != nil || len(run.versions) != 250 {
		t.Fatal(len(run.versions), err)
	}
	store.most = 0
	if err := newMixed(items, store, 1, t.TempDir()).load(1, 1); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}
