package lab

// Suite open; crates/esker-bench/src/suites/open.rs says what it measures.
//
//	another process: load, rest, close                   -> read all files -> open, first get   row: open clean
//	                                          rest, close -> drop the page cache -> open, first get   row: open clean, cold
//	another process: load, write more, wait to be killed -> settle the disk, read all files -> open, first get   row: open after kill
//
// After each row an untimed walk reads everything: what was closed or synced is there, byte for byte, and nothing that was not written.

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"esker.invalid/bench/generate"
)

const (
	openSeed       = 23
	openCacheBytes = 512 << 20
	openBatch      = 1000
	openClean      = "open clean"
	openCleanCold  = "open clean, cold"
	openKilled     = "open after kill"

	// What the other process says when it has written everything: and that it closed an engine which did not come to rest.
	openReady         = "ready"
	openReadyRestless = "ready, without rest"
	openRestlessNote  = "background work went on when the writer closed"

	endClose = "close"
	endKill  = "kill"
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
	killed := seconds(openKilled, 1)
	killed.Group = 1
	return []Row{seconds(openClean, 1), seconds(openCleanCold, 1), killed}
}

func (openSuite) Run(engine Engine, scale string, group int, r *Recorder) error {
	count := openItems(scale)
	end := endClose
	if group == 1 {
		end = endKill
	}
	left, err := writeElsewhere(engine, r.dir, count, end)
	if err != nil {
		return err
	}
	note := ""
	if left == openReadyRestless {
		note = openRestlessNote
	}
	settleDisk()
	if err := readFiles(r.dir); err != nil {
		return err
	}
	if end == endKill {
		return openRow(openKilled, engine, count, count+count/10, r, func() (string, error) { return note, nil })
	}
	if err := openRow(openClean, engine, count, count, r, func() (string, error) { return note, nil }); err != nil {
		return err
	}
	isCold := dropPageCache()
	return openRow(openCleanCold, engine, count, count, r, func() (string, error) {
		if !isCold {
			return "", Unsupported{notCold}
		}
		return note, nil
	})
}

// openRow opens, gets and checks; then the store comes to rest and is closed. What begins says is the row's note, or why it has no value.
func openRow(name string, engine Engine, count, written uint64, r *Recorder, begins func() (string, error)) error {
	var store Store
	err := r.row(name, func() (out outcome, err error) {
		note, err := begins()
		if err != nil {
			return out, err
		}
		store, out, err = openAndGet(engine, r.dir, count)
		out.note = note
		return out, err
	})
	if err != nil || store == nil {
		return err
	}
	// What opening has put off stands beside the row.
	if err = r.drain(store); err == nil {
		err = r.check(openCheck(store, count, written))
	}
	return errors.Join(err, store.Close())
}

// readFiles reads all files under dir, so that what the page cache has room for is in it; holes are passed over.
func readFiles(dir string) error {
	block := make([]byte, 1<<20)
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = readData(file, block)
		return errors.Join(err, file.Close())
	})
}

// readData reads a file to its end; some engines leave sparse files of gigabytes.
func readData(file *os.File, block []byte) (bytes int64, err error) {
	for at := int64(0); ; {
		from, to, err := nextData(file, at)
		if err != nil || from == to {
			return bytes, err
		}
		for at = from; at < to; {
			read, err := file.ReadAt(block[:min(int64(len(block)), to-at)], at)
			at += int64(read)
			bytes += int64(read)
			if err != nil {
				if err == io.EOF {
					err = nil
				}
				return bytes, err
			}
		}
	}
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

// writeElsewhere runs write in another process, to its end or until it says that it has written everything; it gives what that said. Tests
// replace it.
var writeElsewhere = func(engine Engine, dir string, count uint64, end string) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	writer := exec.Command(program, "open-writer", engine.Name(), strconv.FormatUint(count, 10), end, dir)
	stdout, err := writer.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := writer.Start(); err != nil {
		return "", err
	}
	left := ""
	for lines := bufio.NewScanner(stdout); left == "" && lines.Scan(); {
		if text := lines.Text(); text == openReady || text == openReadyRestless {
			left = text
		}
	}
	if end == endKill {
		err = writer.Process.Kill()
	}
	ended := writer.Wait()
	switch {
	case err != nil:
		return "", err
	case left == "":
		return "", fmt.Errorf("the writing process ended by itself (%v)", ended)
	case end == endClose && ended != nil:
		return "", fmt.Errorf("the writing process did not close the database (%v)", ended)
	}
	return left, nil
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
	if args[2] == endClose {
		left, err := openLoadAndClose(engine, args[3], count, idleWindow("seed"))
		if err == nil {
			fmt.Println(left)
		}
		return err
	}
	// Nothing but the kill may close it.
	store, err := openLoadAndMore(engine, args[3], count)
	if err != nil {
		return err
	}
	fmt.Println(openReady)
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(store)
	}
}

// openLoadAndClose closes when the engine owes no background work (OP1 of the Rust side), and says whether that was so.
func openLoadAndClose(engine Engine, dir string, count uint64, window time.Duration) (string, error) {
	store, err := engine.Open(dir, openOptions())
	if err != nil {
		return "", err
	}
	if err := openPut(store, 0, count); err != nil {
		return "", err
	}
	deadline := time.Now().Add(idleWaitMax())
	if err := store.Drain(deadline); err != nil {
		return "", err
	}
	left := openReady
	if _, isIdle := waitUntilIdle(window, time.Until(deadline)); !isIdle {
		left = openReadyRestless
	}
	return left, store.Close()
}

// openLoadAndMore loads count items, and writes a tenth more without a sync.
func openLoadAndMore(engine Engine, dir string, count uint64) (Store, error) {
	store, err := engine.Open(dir, openOptions())
	if err != nil {
		return nil, err
	}
	if err := openPut(store, 0, count); err != nil {
		return nil, err
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
