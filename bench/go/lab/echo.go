package lab

// An engine that does nothing, to measure the lab's own cost of a row: crates/esker-bench/src/suites/echo.rs
// in Go.

import (
	"time"

	"esker.invalid/bench/generate"
)

const echoValueBytes = 8

// Echo is the engine.
type Echo struct{}

func (Echo) Name() string             { return "echo" }
func (Echo) Module() string           { return "" }
func (Echo) Isolation() string        { return "single operations" }
func (Echo) AsyncCommits() *AsyncMode { return nil }
func (Echo) Options() []Option        { return nil }
func (Echo) Cannot(Feature) string    { return "" }

func (Echo) Open(string, OpenOptions) (Store, error) {
	return &echo{generate.StorageItems{Seed: 37}, make([]byte, echoValueBytes)}, nil
}

// echo stores no item and answers a get with the item's first version.
type echo struct {
	items generate.StorageItems
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
	i, ok := e.items.Item(key)
	if !ok {
		return false, nil
	}
	visit(e.items.Value(i, 0, e.value))
	return true, nil
}

func (*echo) Range(_ []byte, _ uint64, _ func(key, value []byte)) (uint64, error) {
	return 0, Unsupported{"nothing is stored"}
}
