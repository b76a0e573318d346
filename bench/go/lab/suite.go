package lab

// The suites: one file each, listed here. Each does what the file of its name in crates/esker-bench/src/suites does; go_peers.rs
// in crates/esker-bench/tests holds the rows of both against each other, and what each row does.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

// Suite is a list of rows, measured in one go on one engine.
type Suite interface {
	Name() string
	Rows(scale string) []Row
	Run(engine Engine, scale string, group int, r *Recorder) error
}

// Suites has all of them.
var Suites = []Suite{
	redbSuite{}, intSuite{}, largeSuite{}, storageBenchSuite{}, obigstoreSuite{}, recordsSuite{}, ycsbSuite{}, badgerSuite{}, sizesSuite{},
	churnSuite{}, keyspacesSuite{}, openSuite{}, transactionsSuite{}, shapesSuite{}, timeSuite{},
}

// FindSuite gives the suite of that name.
func FindSuite(name string) (Suite, error) {
	for _, suite := range Suites {
		if suite.Name() == name {
			return suite, nil
		}
	}
	return nil, fmt.Errorf("no suite %s for engines in Go", name)
}

// rowsOf are the rows of one group.
func rowsOf(suite Suite, scale string, group int) []Row {
	return slices.DeleteFunc(suite.Rows(scale), func(row Row) bool { return row.Group != group })
}

func groupsOf(suite Suite, scale string) int {
	groups := 0
	for _, row := range suite.Rows(scale) {
		groups = max(groups, row.Group+1)
	}
	return groups
}

// expect compares what an engine gave with what the generator says.
func expect(what string, got, expected uint64) error {
	if got != expected {
		return wrong{fmt.Sprintf("%s: %d, not %d", what, got, expected)}
	}
	return nil
}

// fullScan reads everything and compares every byte with what must be there: count items whose checksums sum up to
// expected.
func fullScan(reader Reader, count, expected uint64) error {
	return checkScan(count, expected, func(visit func(key, value []byte)) (uint64, error) {
		return reader.Range(nil, ^uint64(0), visit)
	})
}

// checkScan does the same for what scan shows.
func checkScan(count, expected uint64, scan func(visit func(key, value []byte)) (uint64, error)) error {
	sum, sorted := uint64(0), true
	var previous []byte
	seen, err := scan(func(key, value []byte) {
		sum += generate.Checksum(key, value)
		sorted = sorted && slices.Compare(previous, key) < 0
		previous = append(previous[:0], key...)
	})
	if err != nil {
		return err
	}
	if err := expect("number of items in a full scan", seen, count); err != nil {
		return err
	}
	if err := expect("checksum of a full scan", sum, expected); err != nil {
		return err
	}
	if !sorted {
		return wrong{"a full scan was not in key order"}
	}
	return nil
}

// cannotGroup gives all rows of a group the same error.
func cannotGroup(s Suite, scale string, group int, why string, r *Recorder) error {
	for _, row := range rowsOf(s, scale, group) {
		if err := r.failed(row.Name, Unsupported{why}); err != nil {
			return err
		}
	}
	return nil
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

// inOneTransaction writes n items in one transaction. An engine that refuses one so large, or whose authors advise against it
// (why), gets the same items in as many as it needs, and the answer says why the row has no value.
func inOneTransaction(store Store, why string, n uint64, write func(w Writer, from, to uint64) error) error {
	if why == "" {
		err := store.Write(func(w Writer) error { return write(w, 0, n) })
		if !errors.Is(err, ErrTooLarge) {
			return err
		}
		why = ErrTooLarge.Error()
	}
	const step = 1000
	start := time.Now()
	for from := uint64(0); from < n; from += step {
		if err := store.Write(func(w Writer) error { return write(w, from, min(from+step, n)) }); err != nil {
			return err
		}
	}
	took := time.Since(start).Seconds()
	return Unsupported{fmt.Sprintf("%s; the same items in transactions of %d took %.3f s", why, step, took)}
}
