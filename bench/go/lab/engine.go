// Package lab runs suites on engines and reports rows, without any engine in it.
package lab

// What the suites ask of an engine: the Go side of crates/esker-bench-api/src/engine.rs, with the same invariants.
//
//	Engine.Open(dir) --> Store --Write(txn)--> Writer   Put, Remove
//	                           --Reader()----> Reader   Get, Range, Keys, Len, at one snapshot
//
// S1. Store.Write is one atomic transaction; when it returns in mode Sync, the data is on the device.
// S2. A Reader is a snapshot.
// S3. Values are handed to a visitor, who must not keep them.
// S4. Going back to mode Sync makes durable what was written without.

import (
	"errors"
	"io"
	"runtime/debug"
	"time"
)

// Durability says how far a commit must have got before it returns.
type Durability int

const (
	// Sync: on the device.
	Sync Durability = iota
	// Async: on its way; a power cut loses the newest commits and breaks nothing.
	Async
	// NoSync: anywhere; the fastest mode that leaves a sound database after a crash of the process.
	NoSync
)

// Feature is what some rows need and some engines lack.
type Feature int

const (
	SyncCommits Feature = iota
	AsyncCommits
	NoSyncCommits
	LargeTransactions
	LargeValues
	Compaction
)

// FeatureNames are those of the Rust side.
var FeatureNames = map[Feature]string{
	SyncCommits:       "SyncCommits",
	AsyncCommits:      "AsyncCommits",
	NoSyncCommits:     "NoSyncCommits",
	LargeTransactions: "LargeTransactions",
	LargeValues:       "LargeValues",
	Compaction:        "Compaction",
}

// OpenOptions is what a suite gives every engine alike.
type OpenOptions struct {
	CacheBytes       int64      `json:"cache_bytes"`
	WriteBufferBytes int64      `json:"write_buffer_bytes"` // 0: the engine's own
	ValueBytes       int        `json:"value_bytes"`        // size of the suite's largest values
	Durability       Durability `json:"durability"`
	ConcurrentWrites uint64     `json:"concurrent_writes"` // transactions that are in flight at once; 0 is as 1: one after the other
	AscendingKeys    bool       `json:"ascending_keys"`    // new keys come in ascending order, each behind all that are there, or nearly so where several write at once
}

// Option is one option of an adapter and why it is so.
type Option struct {
	Option  string `json:"option"`
	Value   string `json:"value"`
	Reason  string `json:"reason"`
	Pointer string `json:"pointer"`
}

// Set makes an option: what it is set to, why, and where its authors say so.
func Set(option, value, reason, pointer string) Option {
	return Option{option, value, reason, pointer}
}

// AsyncMode is what async commits have done when they return, and what comes then by itself: see async_commits.rs in crates/esker-bench-api.
type AsyncMode struct {
	Reached string `json:"reached"` // InProcess or InSystem
	Then    string `json:"then"`
	Pointer string `json:"pointer"`
}

// The names of the Rust side.
const (
	InProcess = "in the process alone"
	InSystem  = "handed to the operating system"
)

// Engine is an engine before any database exists.
type Engine interface {
	Name() string
	Module() string
	Isolation() string
	// AsyncCommits is nil for an engine that has no such mode.
	AsyncCommits() *AsyncMode
	Options() []Option
	// Cannot gives the reason why a feature is missing, or "".
	Cannot(Feature) string
	Open(dir string, options OpenOptions) (Store, error)
}

// Store is an open database with one ordered map in it.
type Store interface {
	SetDurability(Durability) error
	Write(work func(Writer) error) error
	Reader() (Reader, error)
	// Get and Range read the newest state once, in the engine's cheapest way.
	Get(key []byte, visit func(value []byte)) (bool, error)
	Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error)
	Compact() error
	// Reopen follows each Compact before anything else, and is not timed: see Store::reopen in engine.rs.
	Reopen() error
	// Drain waits for background work. What does not come to rest before the deadline is left to its work.
	Drain(deadline time.Time) error
	Close() error
}

// Writer is the open transaction of a Store.Write.
type Writer interface {
	Put(key, value []byte) error
	Remove(key []byte) error
}

// Reader is a snapshot.
type Reader interface {
	Get(key []byte, visit func(value []byte)) (bool, error)
	Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error)
	Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error)
	Len() (uint64, error)
	Close() error
}

// Unsupported and wrong fail a row alone; any other error ends the run of the engine.
type Unsupported struct{ Why string }
type wrong struct{ what string }

func (e Unsupported) Error() string { return "not supported: " + e.Why }
func (e wrong) Error() string       { return "wrong answer: " + e.what }

// ErrTooLarge is what Store.Write returns when a transaction has more in it than the engine takes.
var ErrTooLarge = errors.New("a transaction so large is more than the engine takes")

// CloseDB closes the database of an engine and forgets it. What it had on the heap goes back to the system at once: it would take room from the
// page cache where memory is limited, and stand in the peak of what is opened next.
func CloseDB[DB io.Closer](db *DB) error {
	err := (*db).Close()
	var none DB
	*db = none
	debug.FreeOSMemory()
	return err
}

// GetOnce and RangeOnce are Get and Range for engines that read through a snapshot only.
func GetOnce(store Store, key []byte, visit func([]byte)) (found bool, err error) {
	err = withReader(store, func(reader Reader) (err error) {
		found, err = reader.Get(key, visit)
		return err
	})
	return found, err
}

func RangeOnce(store Store, from []byte, limit uint64, visit func(key, value []byte)) (seen uint64, err error) {
	err = withReader(store, func(reader Reader) (err error) {
		seen, err = reader.Range(from, limit, visit)
		return err
	})
	return seen, err
}
