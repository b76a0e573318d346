package lab

// Suites on an engine that notes when it is opened and can lose what is put: crates/esker-bench/src/suites/rehearse.rs in Go.

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"esker.invalid/bench/generate"
)

// fickle is a map in memory that notes after which row it was opened, takes its time for that, and may lose later puts of the first key.
type fickle struct {
	Memory
	out     *bytes.Buffer
	opening time.Duration
	keeps   int // of the puts of the key that is put first; the others are lost
	lacks   bool
	opened  *[]string
	first   *string
	puts    *int
	gets    *[]get
}

// get is a key that was read, and the row that was begun last.
type get struct{ begun, key string }

type fickleStore struct {
	*memoryStore
	engine fickle
}

type fickleWriter struct {
	Writer
	engine fickle
}

func newFickle() fickle {
	return fickle{out: &bytes.Buffer{}, keeps: math.MaxInt, opened: &[]string{}, first: new(string), puts: new(int), gets: &[]get{}}
}

func (e fickle) Cannot(feature Feature) string {
	if e.lacks && feature == AsyncCommits {
		return "has no such mode"
	}
	return ""
}

// begun is the row that was begun last.
func (e fickle) begun() string {
	begun := ""
	for line := range strings.Lines(e.out.String()) {
		var message struct{ Begin string }
		if json.Unmarshal([]byte(line), &message) == nil && message.Begin != "" {
			begun = message.Begin
		}
	}
	return begun
}

func (e fickle) Open(dir string, options OpenOptions) (Store, error) {
	*e.opened = append(*e.opened, e.begun())
	time.Sleep(e.opening)
	store, err := e.Memory.Open(dir, options)
	return fickleStore{store.(*memoryStore), e}, err
}

func (s fickleStore) Write(work func(Writer) error) error {
	return s.memoryStore.Write(func(w Writer) error { return work(fickleWriter{w, s.engine}) })
}

func (s fickleStore) Get(key []byte, visit func([]byte)) (bool, error) {
	*s.engine.gets = append(*s.engine.gets, get{s.engine.begun(), string(key)})
	return s.memoryStore.Get(key, visit)
}

// keysRead are those that were read after the row began, and before the next.
func (e fickle) keysRead(row string) []string {
	var keys []string
	for _, get := range *e.gets {
		if get.begun == row {
			keys = append(keys, get.key)
		}
	}
	return keys
}

func (w fickleWriter) Put(key, value []byte) error {
	if *w.engine.first == "" {
		*w.engine.first = string(key)
	}
	if *w.engine.first == string(key) {
		if *w.engine.puts++; *w.engine.puts > w.engine.keeps {
			return nil
		}
	}
	return w.Writer.Put(key, value)
}

// records runs a group of a suite.
func (e fickle) records(t *testing.T, suite Suite, group int) []record {
	t.Helper()
	if err := rehearse(suite, group, e, t.TempDir(), e.out); err != nil {
		t.Fatal(err)
	}
	return recordsIn(e.out)
}

func pageCache(t *testing.T, canBeDropped bool) {
	before := dropPageCache
	dropPageCache = func() bool { return canBeDropped }
	t.Cleanup(func() { dropPageCache = before })
}

const coldRow = "iterate keys only, cold (128 B)"

func TestBadgerOpensAnewForEachPartAndOpeningCountsToTheColdRowOnly(t *testing.T) {
	pageCache(t, true)
	// A row may be held up on a busy machine for as long as an opening takes, but not each time.
	for range 10 {
		engine, areShort := newFickle(), true
		engine.opening = 500 * time.Millisecond
		for _, rec := range engine.records(t, badgerSuite{}, 2) {
			isCold := rec.Row == coldRow
			if rec.Value == nil || isCold && *rec.Value < 0.5 || rec.Note != "" {
				t.Fatal(rec.Row, rec.Value, rec.Error, rec.Note)
			}
			areShort = areShort && (isCold || *rec.Value < 0.5)
		}
		if expected := []string{"", "populate (128 B)", coldRow, coldRow, "random read (128 B)"}; !slices.Equal(*engine.opened, expected) {
			t.Fatal(*engine.opened)
		}
		if areShort {
			return
		}
	}
	t.Error("opening counts to another row")
}

func TestBadgerSaysThatThePageCacheCannotBeDropped(t *testing.T) {
	pageCache(t, false)
	engine := newFickle()
	for _, rec := range engine.records(t, badgerSuite{}, 2) {
		switch {
		case strings.HasPrefix(rec.Row, "populate"):
			if rec.Error != "" || rec.Note != "" {
				t.Error(rec.Row, rec.Error, rec.Note)
			}
		case rec.Row == coldRow:
			if !strings.Contains(rec.Error, notCold) {
				t.Error(rec.Row, rec.Error)
			}
		case rec.Error != "" || rec.Note != notEmpty:
			t.Error(rec.Row, rec.Error, rec.Note)
		}
	}
	if expected := []string{"", "populate (128 B)", coldRow, "random read (128 B)"}; !slices.Equal(*engine.opened, expected) {
		t.Error(*engine.opened)
	}
}

func TestALostItemVoidsWhatWroteItAndTheWalksThatMissIt(t *testing.T) {
	pageCache(t, true)
	engine := newFickle()
	engine.keeps = 0
	for i, rec := range engine.records(t, badgerSuite{}, 2) {
		expected := "wrong answer: sum of the "
		if i == 0 {
			expected = "wrong answer: number of items in a full scan"
		}
		if !strings.HasPrefix(rec.Error, expected) && !strings.HasPrefix(rec.Row, "random read") {
			t.Error(rec.Row, rec.Error)
		}
	}
}

func TestALostUpdateVoidsTheUpdatesAndNotTheReadsBeforeThem(t *testing.T) {
	pageCache(t, true)
	engine := newFickle()
	engine.keeps = 1
	records := engine.records(t, sizesSuite{}, 0)
	if records[0].Error != "" || !strings.HasPrefix(records[1].Error, "wrong answer: checksum of a full scan") {
		t.Errorf("%+v", records)
	}
}

func TestBothRowsOfReadsBeginWithAStoreOpenedAnew(t *testing.T) {
	for _, note := range []string{"", notEmpty} {
		pageCache(t, note == "")
		engine := newFickle()
		for i, rec := range engine.records(t, sizesSuite{}, 0) {
			if expected := []string{note, "", note}[i]; rec.Value == nil || rec.Note != expected {
				t.Error(rec.Row, rec.Value, rec.Error, rec.Note)
			}
		}
		const updates = "updates, data in cache"
		if expected := []string{"", "", updates, updates}; !slices.Equal(*engine.opened, expected) {
			t.Error(*engine.opened)
		}
	}
}

// drawn are the keys of the first reads of a mix; reads is their number.
func drawn(reads int) []string {
	rng, items := generate.NewRng(sizesSeed), generate.StorageItems{Seed: sizesSeed, Sequential: true}
	keys := make([]string, reads)
	for i := range keys {
		rng.Below(100) // the kind
		var key [generate.StorageKeyBytes]byte
		keys[i] = string(items.Key(generate.Uniform(rng, sizesOfData("test")[0].items), &key))
	}
	return keys
}

func TestOtherReadsComeBeforeBothRowsOfReadsAndAreNoPartOfThem(t *testing.T) {
	pageCache(t, true)
	engine := newFickle()
	records := engine.records(t, sizesSuite{}, 0)
	const reads, updates, readsAfter = "reads, data in cache", "updates, data in cache", "reads after updates, data in cache"
	for i, rows := range [][2]string{{"", reads}, {updates, readsAfter}} {
		warmUp, timed := engine.keysRead(rows[0]), engine.keysRead(rows[1])
		if len(warmUp) != 50 || len(timed) != 200 || slices.Equal(warmUp, timed[:len(warmUp)]) {
			t.Error(rows, len(warmUp), len(timed))
		}
		if i == 0 && !slices.Equal(timed, drawn(200)) {
			t.Error("the warm-up changed what the row draws")
		}
		if rec := records[2*i]; rec.Ops != 200 || rec.Detail.Figures["warm-up reads"] != 50 {
			t.Errorf("%+v", rec)
		}
	}
	for scale, time := range map[string]time.Duration{"quick": time.Second / 2, "seed": 5 * time.Second, "full": 10 * time.Second} {
		if warmUp := sizesWarmUp(sizesBudget(scale)); warmUp.time != time {
			t.Error(scale, warmUp)
		}
	}
}

func TestAWrongAnswerInTheWarmUpIsThatOfItsRow(t *testing.T) {
	pageCache(t, true)
	engine := newFickle()
	engine.keeps = 0
	rec := engine.records(t, sizesSuite{}, 0)[0]
	if !strings.HasPrefix(rec.Error, "wrong answer: the value that a get returned") || len(engine.keysRead(rec.Row)) > 0 {
		t.Errorf("%+v", rec)
	}
}

func TestSizesWithoutAsyncCommitsHasTheReads(t *testing.T) {
	pageCache(t, true)
	engine := newFickle()
	engine.lacks = true
	for i, rec := range engine.records(t, sizesSuite{}, 0) {
		if expected := []string{"", "not supported: has no such mode", "not supported: has no such mode"}[i]; rec.Error != expected {
			t.Error(rec.Row, rec.Error)
		}
	}
}

func TestTheColdRowOfOpenOpensAnewAndRowsSayWhatWasNotSo(t *testing.T) {
	for _, canBeDropped := range []bool{true, false} {
		pageCache(t, canBeDropped)
		engine := newFickle()
		records := engine.records(t, openSuite{}, 0)
		expected, why := []string{"", openClean, openCleanCold}, ""
		if !canBeDropped {
			expected, why = expected[:2], "not supported: "+notCold
		}
		if !slices.Equal(*engine.opened, expected) {
			t.Error(*engine.opened)
		}
		if records[0].Error != "" || records[1].Error != why {
			t.Errorf("%+v", records)
		}
	}
}

func TestTheWriterOfOpenWaitsForRestAndSaysWhenThereWasNone(t *testing.T) {
	// In minutes three short windows of rest are found, on a busy machine too.
	for window, step := range map[time.Duration]string{50 * time.Millisecond: "2000", time.Second: "1"} {
		t.Setenv(stepSeconds, step)
		start := time.Now()
		left, err := openLoadAndClose(newFickle(), t.TempDir(), 50, window)
		expected := openReady
		if window == time.Second { // three windows do not fit
			expected = openReadyRestless
		}
		if err != nil || left != expected || time.Since(start) < 3*min(window, 100*time.Millisecond) {
			t.Error(window, left, err)
		}
	}
}

func TestFilesAreReadToTheirEndWithoutTheirHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(file.Truncate(1<<40), file.Sync()); err != nil {
		t.Fatal(err)
	}
	read, err := readData(file, make([]byte, 1<<20))
	if err != nil || read < 3<<20 || runtime.GOOS == "linux" && read >= 4<<20 {
		t.Error(read, err)
	}
	if err := readFiles(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
}
