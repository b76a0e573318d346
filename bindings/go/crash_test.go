package esker_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"esker.dev/esker"
)

const (
	crashWriters = 4
	childDir     = "ESKER_TEST_CHILD"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(dir))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes numbered commits from several goroutines and prints each number once it is
// acknowledged.
//
// Commit n of a writer puts key n, appends it to a log by merge, and adds 1 to the counter that all share.
// Each 16th removes the keys far below n.
func writeUntilKilled(dir string) error {
	// A kill loses nothing of Buffered commits either.
	durability := []esker.Durability{esker.Sync, esker.Buffered}[rand.N(2)]
	db, err := esker.Open(dir, &esker.Options{Durability: durability, Memory: 32 << 20, FeedBytes: 4 << 20})
	if err != nil {
		return err
	}
	ended := make(chan error)
	for writer := range crashWriters {
		go func() { ended <- writeOne(db, strconv.Itoa(writer)) }()
	}
	return <-ended
}

func writeOne(db *esker.DB, writer string) error {
	for {
		var number uint64
		err := db.Update(func(tx *esker.Tx) error {
			keys, err := tx.Keyspace("keys" + writer)
			logs, err2 := tx.Keyspace("logs")
			if err = errors.Join(err, err2); err != nil {
				return err
			}
			last, _ := keys.Cursor().Last()
			number = 1
			if last != nil {
				number = binary.BigEndian.Uint64(last) + 1
			}
			key := binary.BigEndian.AppendUint64(nil, number)
			err = errors.Join(keys.PutTTL(key, make([]byte, number%3000), time.Hour), logs.Merge(b(writer), key))
			if number%16 == 0 {
				err = errors.Join(err, keys.DeleteRange(nil, binary.BigEndian.AppendUint64(nil, number-8)))
			}
			_, err2 = logs.Add(b("count"), 1)
			return errors.Join(err, err2)
		})
		if err != nil {
			return err
		}
		// One write call: lines of the goroutines do not mix.
		_, _ = os.Stdout.WriteString(writer + " " + strconv.FormatUint(number, 10) + "\n")
	}
}

// killed runs the child for a moment, and notes what it acknowledged before it was killed.
func killed(t *testing.T, dir string, acknowledged map[string]uint64) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	output := value(child.StdoutPipe())(t)
	must(t, child.Start())
	var kill sync.Once
	timer := time.AfterFunc(time.Duration(rand.N(80))*time.Millisecond, func() {
		kill.Do(func() { _ = child.Process.Kill() })
	})
	defer timer.Stop()
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var writer string
		var number uint64
		// The last line may be cut.
		if count, err := fmt.Sscanf(lines.Text(), "%s %d", &writer, &number); count == 2 && err == nil {
			acknowledged[writer] = max(acknowledged[writer], number)
		}
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the child was not killed: %v", err)
	}
}

// verify checks that commits are whole, in order, and that none is missing that was acknowledged.
func verify(t *testing.T, dir string, acknowledged map[string]uint64) (total uint64) {
	db := value(esker.Open(dir, &esker.Options{Memory: 32 << 20, FeedBytes: 4 << 20}))(t)
	defer func() { must(t, errors.Join(db.Check(), db.Close())) }()
	logs := value(db.Keyspace("logs"))(t)
	_ = logs.SetMergeOperator("append")
	for writer := range crashWriters {
		name := strconv.Itoa(writer)
		keys := value(db.Keyspace("keys" + name))(t)
		log, err := logs.Get(b(name))
		if err != nil {
			wants(t, err, esker.ErrNotFound)
		}
		last := uint64(len(log) / 8)
		if last < acknowledged[name] {
			t.Fatalf("writer %s: commit %d was acknowledged, and %d is the last one", name, acknowledged[name], last)
		}
		for at := uint64(1); at <= last; at++ {
			equal(t, binary.BigEndian.Uint64(log[at*8-8:]), at)
		}
		first := uint64(1)
		if last >= 16 {
			first = last/16*16 - 8
		}
		for key, val := range keys.All() {
			equal(t, binary.BigEndian.Uint64(key), first)
			equal(t, uint64(len(val)), first%3000)
			first++
		}
		must(t, keys.Err())
		equal(t, first, last+1)
		total += last
	}
	equal(t, value(logs.Add(b("count"), 0))(t), int64(total))
	return total
}

// TestKills kills a writing process again and again. ESKER_KILLS says how often.
func TestKills(t *testing.T) {
	kills := 30
	if text := os.Getenv("ESKER_KILLS"); text != "" {
		kills = value(strconv.Atoi(text))(t)
	}
	dir, acknowledged := filepath.Join(t.TempDir(), "db"), map[string]uint64{}
	verify(t, dir, acknowledged)
	var total uint64
	for range kills {
		killed(t, dir, acknowledged)
		total = verify(t, dir, acknowledged)
	}
	if total < uint64(kills) {
		t.Fatalf("the child made %d commits in %d lives", total, kills)
	}
	t.Logf("%d kills, %d commits, acknowledged up to %v", kills, total, acknowledged)
}
