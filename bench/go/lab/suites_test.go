package lab

// Every suite at the smallest scale on a map in memory, and on one that must fail: it flips a byte in one value of ten.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"esker.invalid/bench/generate"
)

// groupOf runs one group of a suite and gives its records.
func groupOf(t *testing.T, suite Suite, group int, engine Engine) []record {
	t.Helper()
	out := &bytes.Buffer{}
	if err := rehearse(suite, group, engine, t.TempDir(), out); err != nil {
		t.Fatal(suite.Name(), group, err)
	}
	records := recordsIn(out)
	if count := len(rowsOf(suite, "test", group)); len(records) != count {
		t.Fatalf("%s: %d rows of %d", suite.Name(), len(records), count)
	}
	return records
}

// recordsIn are the rows that were told to their end, each as it was told last.
func recordsIn(out *bytes.Buffer) []record {
	var records []record
	for line := range strings.Lines(out.String()) {
		var message struct{ Row *record }
		if json.Unmarshal([]byte(line), &message) != nil || message.Row == nil {
			continue
		}
		told := slices.IndexFunc(records, func(rec record) bool { return rec.Row == message.Row.Row })
		if told < 0 {
			records = append(records, *message.Row)
		} else {
			records[told] = *message.Row
		}
	}
	return records
}

func eachGroup(visit func(suite Suite, group int)) {
	for _, suite := range Suites {
		for group := range groupsOf(suite, "test") {
			visit(suite, group)
		}
	}
}

func isNotHome(rec record) bool {
	return strings.Contains(rec.Error, recordsNotHome) || strings.Contains(rec.Error, timeNoFeed)
}

func TestEveryRowHasAValue(t *testing.T) {
	eachGroup(func(suite Suite, group int) {
		for _, rec := range groupOf(t, suite, group, Memory{}) {
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
		records := groupOf(t, suite, group, Memory{Flips: true})
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

// told notes of each opening whether it was for keys in ascending order.
type told struct {
	Memory
	ascending *[]bool
}

func (e told) Open(dir string, options OpenOptions) (Store, error) {
	*e.ascending = append(*e.ascending, options.AscendingKeys)
	return e.Memory.Open(dir, options)
}

func TestStoresAreToldOfAscendingKeysWhereKeysAscend(t *testing.T) {
	pageCache(t, true)
	groups := map[string][]int{"storage-bench": {1}, "obigstore": {2, 3, 4, 6}, "sizes": {0, 1, 2}, "churn": {0}, "shapes": {generate.Sequential}}
	eachGroup(func(suite Suite, group int) {
		engine := told{ascending: &[]bool{}}
		if name := suite.Name(); name == (transactionsSuite{}).Name() || name == (timeSuite{}).Name() { // random keys, and no Store
			return
		}
		if isNotHome(groupOf(t, suite, group, engine)[0]) {
			return
		}
		expected := make([]bool, len(*engine.ascending))
		for i := range expected {
			// Of suite sizes the first opening alone is for the load.
			expected[i] = slices.Contains(groups[suite.Name()], group) && (i == 0 || suite.Name() != "sizes")
		}
		if len(expected) == 0 || !slices.Equal(*engine.ascending, expected) {
			t.Errorf("%s, group %d: %t", suite.Name(), group, *engine.ascending)
		}
	})
}

// eternal has entries that do not expire.
type eternal struct{ Memory }

type eternalStore struct{ Expiring }

func (e eternal) OpenExpiring(dir string, options OpenOptions) (Expiring, error) {
	store, err := e.Memory.OpenExpiring(dir, options)
	return eternalStore{store}, err
}

func (s eternalStore) PutFor(key, value []byte, _ time.Duration) error {
	return s.Expiring.PutFor(key, value, 0)
}

func TestCanaryAnExpiredEntryThatIsFoundFailsTheRows(t *testing.T) {
	records := groupOf(t, timeSuite{}, 0, eternal{})
	if records[0].Error != "wrong answer: number of items in a full scan: 60, not 6" || records[1].Error != "wrong answer: an expired entry was found" {
		t.Errorf("%+v", records)
	}
}

// forgetful has lost the first item of a database that it opens again.
type forgetful struct{ Memory }

func (e forgetful) Open(dir string, options OpenOptions) (Store, error) {
	store, err := e.Memory.Open(dir, options)
	if memory := store.(*memoryStore); len(memory.values) > 0 {
		delete(memory.values, slices.Min(slices.Collect(maps.Keys(memory.values))))
		memory.sorted = nil
	}
	return store, err
}

func TestCanaryAnItemLostByOpeningFailsTheRow(t *testing.T) {
	for group := range 2 {
		pageCache(t, true)
		for i, rec := range groupOf(t, openSuite{}, group, forgetful{}) {
			if rec.Value != nil || rec.Error != fmt.Sprintf("wrong answer: items that are missing: %d, not 0", i+1) {
				t.Errorf("%s: %v %s", rec.Row, rec.Value, rec.Error)
			}
		}
	}
}

// slow takes half a second to open a database again behind a compaction.
type slow struct {
	Memory
	reopened *int
}

type slowStore struct {
	*memoryStore
	reopened *int
}

func (e slow) Open(dir string, options OpenOptions) (Store, error) {
	store, err := e.Memory.Open(dir, options)
	return slowStore{store.(*memoryStore), e.reopened}, err
}

func (s slowStore) Reopen() error {
	*s.reopened++
	time.Sleep(500 * time.Millisecond)
	return nil
}

func TestOpeningBehindACompactionIsNotTimed(t *testing.T) {
	reopened := 0
	for _, rec := range groupOf(t, redbSuite{}, 0, slow{reopened: &reopened}) {
		if rec.Row == "compaction" && (rec.Value == nil || *rec.Value >= 0.5) {
			t.Error(rec.Value, rec.Error)
		}
	}
	if reopened != 1 {
		t.Error(reopened)
	}
}

func TestObigstoreComparesEveryItem(t *testing.T) {
	const keys = 30_000
	store := &memoryStore{values: map[string][]byte{}}
	for i := range uint64(keys) {
		key := generate.ObigSequential(i)
		store.values[string(key[:])] = generate.ObigValue(&key, make([]byte, obigValueBytes))
	}
	run := &obigRun{store: store}
	verify := func(n uint64) error { return run.verify(keysBelow(n, generate.ObigSequential), obigValueBytes) }
	if err := verify(keys); err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{keys - 1, keys + 1} {
		if err := verify(n); !errors.As(err, &wrong{}) {
			t.Errorf("%d: %v", n, err)
		}
	}
	key := generate.ObigSequential(1)
	store.values[string(key[:])][obigValueBytes/2] ^= 1
	if err := verify(keys); !errors.As(err, &wrong{}) {
		t.Error(err)
	}
}

// obigReads is a run of suite obigstore on a database of keys items in memory.
func obigReads(t *testing.T, keys uint64) (*obigRun, *memoryStore) {
	store := &memoryStore{values: map[string][]byte{}}
	for i := range keys {
		key := generate.ObigSequential(i)
		store.values[string(key[:])] = generate.ObigValue(&key, make([]byte, obigValueBytes))
	}
	return &obigRun{store: store, counts: obigCountsOf("test"), scale: "test", r: &Recorder{dir: t.TempDir()}}, store
}

func TestOneWrongValueIsFoundInEachRowOfReadsOfObigstore(t *testing.T) {
	const keys = 2_000
	run, store := obigReads(t, keys)
	check := func(rangesAreWrong, lookUpsAreWrong bool) {
		t.Helper()
		_, ranges := run.ranges(keys)
		_, lookUps := run.randomReads(1)
		if errors.As(ranges, &wrong{}) != rangesAreWrong || errors.As(lookUps, &wrong{}) != lookUpsAreWrong {
			t.Error(ranges, lookUps)
		}
	}
	flip := func(i uint64) {
		key := generate.ObigSequential(i)
		store.values[string(key[:])][obigValueBytes-1] ^= 1
	}
	check(false, false)
	// The last key of the first range.
	flip(firstOfRange(generate.NewRng(obigSeed), keys) + obigRangeKeys - 1)
	check(true, false)
	flip(0)
	check(true, true)
	for _, rec := range groupOf(t, obigstoreSuite{}, obigReadGroup, Memory{Flips: true}) {
		if !strings.HasPrefix(rec.Error, "wrong answer: sum of all answers to a thread") {
			t.Error(rec.Row, rec.Error)
		}
	}
}

func TestAllRequestsOfObigstoreComeBeforeTheFirstCheckAndOneThreadCountsItsCallsAlone(t *testing.T) {
	run, _ := obigReads(t, 0)
	for _, threads := range []uint64{1, obigReaders} {
		var requests atomic.Int64
		request := func(rng *generate.Rng) (obigAnswer, error) {
			requests.Add(1)
			from := time.Now()
			return obigAnswer{from, from.Add(time.Second), rng.Next()}, nil
		}
		expected := func(rng *generate.Rng) uint64 {
			if requests.Load() != obigTestRequests {
				t.Error("OR1:", requests.Load())
			}
			return rng.Next()
		}
		out, err := run.requests(threads, 3, request, expected)
		if err != nil || out.ops != 3*obigTestRequests || (out.seconds >= obigTestRequests) != (threads == 1) {
			t.Error("OR2:", threads, out, err)
		}
	}
}

// narrowStore takes no more than most items in a transaction.
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
	if err := run.load(250, 100, nil); err != nil {
		t.Fatal(err)
	}
	if err := run.fullCheck(); err != nil || len(run.versions) != 250 {
		t.Fatal(len(run.versions), err)
	}
	store.most = 0
	if err := newMixed(items, store, 1, t.TempDir()).load(1, 1, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}

func TestAtSeedAMixOfYcsbTakesItsTimeAndElsewhereHasACount(t *testing.T) {
	for _, isSync := range []bool{false, true} {
		if seed := ycsbBudget("seed", isSync); seed != (budget{10 * time.Second, math.MaxUint64}) {
			t.Error(seed)
		}
		for scale, ops := range map[string]uint64{"quick": ycsbCount("quick", isSync), "full": 1_000_000, "test": ycsbTestOps} {
			if counted := ycsbBudget(scale, isSync); counted != operations(ops) {
				t.Error(scale, counted)
			}
		}
	}
}

func TestPutsOfRecordsAreDrained(t *testing.T) {
	for _, rec := range groupOf(t, recordsSuite{}, recordsLatencyGroup, Memory{}) {
		if isPut := strings.HasPrefix(rec.Row, "put "); rec.Detail == nil || (rec.Detail.DrainS != nil) != isPut {
			t.Error(rec.Row, rec.Detail)
		}
	}
}

func TestTheLabItselfCostsSomething(t *testing.T) {
	for _, kind := range []string{"read", "insert"} {
		out := &bytes.Buffer{}
		if err := Cost([]string{kind, "1000", t.TempDir()}, out); err != nil {
			t.Fatal(kind, err)
		}
		if cost, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64); err != nil || cost <= 0 || cost > 1 {
			t.Errorf("%s: %q", kind, out)
		}
	}
	if err := Cost([]string{"scan", "1", t.TempDir()}, &bytes.Buffer{}); !errors.As(err, &Unsupported{}) {
		t.Errorf("a scan of nothing: %v", err)
	}
	if err := Cost([]string{"delete", "1", t.TempDir()}, &bytes.Buffer{}); err == nil {
		t.Error("there is no such kind")
	}
}
