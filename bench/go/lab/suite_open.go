package lab

// Suite open; crates/esker-bench/src/suites/open.rs says what it measures.
//
//	another process: load, drain, close                  -> open, first get   row: open clean
//	another process: load, write more, wait to be killed -> open, first get   row: open after kill
//
// After each row an untimed walk reads everything: what was closed or synced is there, byte for byte, and nothing that was not written.

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"esker.invalid/bench/generate"
)

const (
	openSeed       = 23
	openCacheBytes = 512 << 20
	openBatch      = 1000
	openReady      = "ready"
	endClose       = "close"
	endKill        = "kill"
)

func openItems(scale string) uint64 {
	switch scale {
	case "test":
		return 2_000
	case "quick":
		return 200_000
	case "seed":
		return 2_000_000
	}
	return 10_000_000
}

type openSuite struct{}

func (openSuite) Name() string { return "open" }

func (openSuite) Rows(string) []Row {
	killed := seconds("open after kill", 1)
	killed.Group = 1
	return []Row{seconds("open clean", 1), killed}
}

func (openSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	count := openItems(scale)
	name, end, written := "open clean", endClose, count
	if group == 1 {
		name, end, written = "open after kill", endKill, count+count/10
	}
	if err := writeElsewhere(engine, r.dir, count, end); err != nil {
		return err
	}
	var store Store
	err := r.row(name, func() (out outcome, err error) {
		store, out, err = openAndGet(engine, r.dir, count)
		return out, err
	})
	if err != nil || store == nil {
		return err
	}
	return errors.Join(r.check(openCheck(store, count, written)), store.Close())
}

// openCheck reads everything: the first kept items are all there, and nothing is that is not one of the first written, byte for byte.
func openCheck(store Store, kept, written uint64) error {
	type numbered struct {
		key [generate.ItemKeyBytes]byte
		i   uint64
	}
	items := generate.Items{Seed: openSeed}
	left := make([]numbered, written)
	for i := range left {
		left[i].i = uint64(i)
		items.Key(uint64(i), &left[i].key)
	}
	slices.SortFunc(left, func(a, b numbered) int { return bytes.Compare(a.key[:], b.key[:]) })
	missing, wrongs := uint64(0), uint64(0)
	pass := func(item numbered) {
		if item.i < kept {
			missing++
		}
	}
	var expected [generate.ItemValueBytes]byte
	return withReader(store, func(reader Reader) error {
		seen, err := reader.Range(nil, ^uint64(0), func(key, value []byte) {
			isRight := false
			for len(left) > 0 && bytes.Compare(left[0].key[:], key) <= 0 {
				if bytes.Equal(left[0].key[:], key) {
					isRight = bytes.Equal(items.Value(left[0].i, &expected), value)
				} else {
					pass(left[0])
				}
				left = left[1:]
			}
			if !isRight {
				wrongs++
			}
		})
		if err != nil {
			return err
		}
		for _, item := range left {
			pass(item)
		}
		length, err := reader.Len()
		return cmp.Or(
			err,
			expect("items that are missing", missing, 0),
			expect("items that are not as they were written", wrongs, 0),
			expect("number of items by len()", length, seen),
		)
	})
}

func openOptions() OpenOptions {
	return OpenOptions{CacheBytes: openCacheBytes, ValueBytes: generate.ItemValueBytes, Durability: Sync}
}

// openAndGet opens and reads one item of the synced ones, timed as one.
func openAndGet(engine Engine, dir string, count uint64) (Store, outcome, error) {
	items, i := generate.Items{Seed: openSeed}, count/2
	var key [generate.ItemKeyBytes]byte
	var value [generate.ItemValueBytes]byte
	items.Key(i, &key)
	var got []byte
	start := time.Now()
	store, err := engine.Open(dir, openOptions())
	if err != nil {
		return nil, outcome{}, err
	}
	_, err = store.Get(key[:], func(value []byte) { got = append(got, value...) })
	took := time.Since(start).Seconds()
	if err == nil && !bytes.Equal(got, items.Value(i, &value)) {
		err = wrong{"the first get is not right"}
	}
	return store, outcome{seconds: took}, err
}

// writeElsewhere runs write in another process, to its end or until it says that it has written everything. Tests replace it.
var writeElsewhere = func(engine Engine, dir string, count uint64, end string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	writer := exec.Command(program, "open-writer", engine.Name(), strconv.FormatUint(count, 10), end, dir)
	stdout, err := writer.StdoutPipe()
	if err != nil {
		return err
	}
	if err := writer.Start(); err != nil {
		return err
	}
	isReady := false
	for lines := bufio.NewScanner(stdout); !isReady && lines.Scan(); {
		isReady = lines.Text() == openReady
	}
	if end == endKill {
		err = writer.Process.Kill()
	}
	ended := writer.Wait()
	switch {
	case err != nil:
		return err
	case !isReady:
		return fmt.Errorf("the writing process ended by itself (%v)", ended)
	case end == endClose && ended != nil:
		return fmt.Errorf("the writing process did not close the database (%v)", ended)
	}
	return nil
}

// OpenWriter is the other process: ENGINE COUNT END DIR.
func OpenWriter(engines []Engine, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("open-writer needs ENGINE COUNT END DIR")
	}
	engine, err := findEngine(engines, args[0])
	if err != nil {
		return err
	}
	count, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	dieWithTheRunner()
	store, err := openWrite(engine, args[3], count, args[2])
	if err != nil {
		return err
	}
	if args[2] == endClose {
		if err := store.Close(); err != nil {
			return err
		}
	}
	fmt.Println(openReady)
	for args[2] == endKill {
		time.Sleep(time.Hour)
	}
	return nil
}

// openWrite loads count items; then drains, or writes a tenth more without a sync.
func openWrite(engine Engine, dir string, count uint64, end string) (Store, error) {
	store, err := engine.Open(dir, openOptions())
	if err != nil {
		return nil, err
	}
	if err := openPut(store, 0, count); err != nil {
		return nil, err
	}
	if end == endClose {
		return store, store.Drain(time.Now().Add(idleWaitMax()))
	}
	fast := NoSync
	if engine.Cannot(AsyncCommits) == "" {
		fast = Async
	}
	return store, errors.Join(store.SetDurability(fast), openPut(store, count, count+count/10))
}

func openPut(store Store, from, to uint64) error {
	items := generate.Items{Seed: openSeed}
	var key [generate.ItemKeyBytes]byte
	var value [generate.ItemValueBytes]byte
	for ; from < to; from += openBatch {
		err := store.Write(func(w Writer) error {
			for i := from; i < min(from+openBatch, to); i++ {
				if err := w.Put(items.Key(i, &key), items.Value(i, &value)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
