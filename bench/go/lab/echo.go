package lab

// An engine that does nothing: what a row of the lab costs without one. crates/esker-bench/src/suites/echo.rs in Go.

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"esker.invalid/bench/generate"
)

const (
	echoSeed       = 37
	echoValueBytes = 8
	echoItems      = 1_000_000
)

// Cost writes what one call of a mix costs when the engine does nothing, in seconds. The arguments are KIND OPS DIR.
func Cost(args []string, out io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("cost needs KIND OPS DIR")
	}
	kind := slices.Index(mixedKinds, args[0])
	if kind < 0 {
		return fmt.Errorf("no kind %s of operations", args[0])
	}
	ops, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	items := storageItems{generate.StorageItems{Seed: echoSeed}, echoValueBytes}
	run := newMixed(items, &echo{items: items, value: make([]byte, echoValueBytes)}, echoSeed, args[2])
	run.adopt(echoItems)
	mix := mix{ask: generate.Uniform}
	mix.percent[kind] = 100
	ran, err := run.run(mix, operations(ops), 250*time.Millisecond)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, ran.seconds/float64(ran.ops))
	return err
}

// echo stores no item and answers a get with the item's first version.
type echo struct {
	items storageItems
	value []byte
}

func (*echo) SetDurability(Durability) error        { return nil }
func (*echo) Compact() error                        { return nil }
func (*echo) Reopen() error                         { return nil }
func (*echo) Drain(time.Time) error                 { return nil }
func (*echo) Close() error                          { return nil }
func (*echo) Put(_, _ []byte) error                 { return nil }
func (*echo) Remove(_ []byte) error                 { return nil }
func (e *echo) Write(work func(Writer) error) error { return work(e) }
func (*echo) Reader() (Reader, error)               { return nil, Unsupported{"nothing is stored"} }

func (e *echo) Get(key []byte, visit func(value []byte)) (bool, error) {
	i, ok := e.items.item(key)
	if !ok {
		return false, nil
	}
	e.items.fill(i, 0, e.value)
	visit(e.value)
	return true, nil
}

func (*echo) Range(_ []byte, _ uint64, _ func(key, value []byte)) (uint64, error) {
	return 0, Unsupported{"nothing is stored"}
}
