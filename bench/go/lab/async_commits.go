package lab

// The processes that crates/esker-bench/src/async_commits.rs starts for an engine in Go: one makes async commits and is killed, another tells
// how many of them are there.

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"esker.invalid/bench/generate"
)

const (
	asyncSeed       = 29
	asyncCacheBytes = 64 << 20
	asyncReady      = "ready"
)

// AsyncWriter is the process that is killed: ENGINE COMMITS DIR.
func AsyncWriter(engines []Engine, args []string) error {
	store, commits, err := openAsync(engines, args)
	if err != nil {
		return err
	}
	dieWithTheRunner()
	items := generate.Items{Seed: asyncSeed}
	var key [generate.ItemKeyBytes]byte
	var value [generate.ItemValueBytes]byte
	for i := range commits {
		err := store.Write(func(w Writer) error { return w.Put(items.Key(i, &key), items.Value(i, &value)) })
		if err != nil {
			return err
		}
	}
	fmt.Println(asyncReady)
	// Nothing but the kill may close it.
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(store)
	}
}

// AsyncSurvivors is the process that looks at what is left: how many of the first commits are there (AS1 of the Rust side). ENGINE COMMITS DIR.
func AsyncSurvivors(engines []Engine, args []string) (uint64, error) {
	store, commits, err := openAsync(engines, args)
	if err != nil {
		return 0, err
	}
	items := generate.Items{Seed: asyncSeed}
	var key [generate.ItemKeyBytes]byte
	var value [generate.ItemValueBytes]byte
	first, there := uint64(0), uint64(0)
	err = withReader(store, func(reader Reader) (err error) {
		for isRight := true; isRight && first < commits; {
			found, err := reader.Get(items.Key(first, &key), func(got []byte) {
				isRight = bytes.Equal(got, items.Value(first, &value))
			})
			if err != nil {
				return err
			}
			if isRight = isRight && found; isRight {
				first++
			}
		}
		there, err = reader.Len()
		return err
	})
	if err == nil && first != there {
		err = wrong{fmt.Sprintf("%d items are there, and only the first %d commits", there, first)}
	}
	if closeErr := store.Close(); err == nil {
		err = closeErr
	}
	return first, err
}

func openAsync(engines []Engine, args []string) (store Store, commits uint64, err error) {
	if len(args) != 3 {
		return nil, 0, fmt.Errorf("ENGINE COMMITS DIR are needed")
	}
	engine, err := findEngine(engines, args[0])
	if err != nil {
		return nil, 0, err
	}
	if commits, err = strconv.ParseUint(args[1], 10, 64); err != nil {
		return nil, 0, err
	}
	store, err = engine.Open(args[2], OpenOptions{CacheBytes: asyncCacheBytes, Durability: Async})
	return store, commits, err
}
