// Package lab does the work of suites on engines. It contains no engine.
package lab

// The interfaces of an engine: the Go side of engine.rs and store.rs in crates/esker-bench-api/src, which
// promise the same.
//
//	Engine.Open(dir) --> Store --Write(txn)--> Writer   Put, Remove
//	                           --Reader()----> Reader   Get, Range, Keys, Len, at one snapshot
//
// - Store.Write is one atomic transaction. In mode Sync, its data is on the device when it returns.
// - A Reader is a snapshot.
// - A visitor receives values and must not keep them.
// - Setting the mode back to Sync makes all earlier commits durable.

import (
	"errors"
	"io"
	"runtime/debug"
	"time"
)

// Durability says how far a commit has come when it returns.
type Durability int

const (
	// Sync: it is on the device.
	Sync Durability = iota
	// Async: it will be written. A power cut loses the newest commits and corrupts nothing.
	Async
	// NoSync: the fastest mode that leaves a sound database after a crash of the process.
	NoSync
)

// Feature is something that some rows need and some engines lack.
type Feature int

const (
	SyncCommits Feature = iota
	AsyncCommits
	NoSyncCommits
	LargeTransactions
	LargeValues
	Compaction
)

// FeatureNames are the names on the Rust side.
var FeatureNames = map[Feature]string{
	SyncCommits:       "SyncCommits",
	AsyncCommits:      "AsyncCommits",
	NoSyncCommits:     "NoSyncCommits",
	LargeTransactions: "LargeTransactions",
	LargeValues:       "LargeValues",
	Compaction:        "Compaction",
}

// OpenOptions are the same for all engines of a suite.
type OpenOptions struct {
	CacheBytes       int64      `json:"cache_bytes"`
	WriteBufferBytes int64      `json:"write_buffer_bytes"` // 0: the engine's default
	ValueBytes       int        `json:"value_bytes"`        // size of the suite's largest values
	Durability       Durability `json:"durability"`
	ConcurrentWrites uint64     `json:"concurrent_writes"` // transactions in flight; 0 is the same as 1
	AscendingKeys    bool       `json:"ascending_keys"`    // new keys ascend, or nearly so with several writers
}

// Option is one option of an adapter, with its reason.
type Option struct {
	Option  string `json:"option"`
	Value   string `json:"value"`
	Reason  string `json:"reason"`
	Pointer string `json:"pointer"`
}

// Set makes an option: its value, the reason, and where the engine's authors advise it.
func Set(option, value, reason, pointer string) Option {
	return Option{option, value, reason, pointer}
}

// AsyncMode describes async commits: what has happened when one returns, and what follows without further
// calls. See async_commits.rs in crates/esker-bench-api.
type AsyncMode struct {
	Reached string `json:"reached"` // InProcess or InSystem
	Then    string `json:"then"`
	Pointer string `json:"pointer"`
}

// Names on the Rust side.
const (
	InProcess = "in the process alone"
	InSystem  = "handed to the operating system"
)

// Engine opens databases.
type Engine interface {
	Name() string
	Module() string
	Isolation() string
	// AsyncCommits is nil for an engine that has no such mode.
	AsyncCommits() *AsyncMode
	Options() []Option
	// Cannot returns why a feature is missing, or "".
	Cannot(Feature) string
	Open(dir string, options OpenOptions) (Store, error)
}

// Store is an open database with one ordered map in it.
type Store interface {
	SetDurability(Durability) error
	Write(work func(Writer) error) error
	Reader() (Reader, error)
	// Get and Range read the newest state, in the engine's cheapest way.
	Get(key []byte, visit func(value []byte)) (bool, error)
	Range(from []byte, limit uint64, visit func(key, value []byte)) (uint64, error)
	Compact() error
	// Reopen follows each Compact and is not timed: see Store::reopen in store.rs.
	Reopen() error
	// Drain waits for background work, until the deadline at most.
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

// Unsupported and wrong fail one row. Any other error ends the run of the engine.
type Unsupported struct{ Why string }
type wrong struct{ what string }

func (e Unsupported) Error() string { return "not supported: " + e.Why }
func (e wrong) Error() string       { return "wrong answer: " + e.what }

// ErrTooLarge is returned by Store.Write for a transaction that is too large for the engine.
var ErrTooLarge = errors.New("a transaction so large is more than the engine takes")

// CloseDB closes the database of an engine, and returns its heap to the system at once. Otherwise that memory
// would be missing for the page cache where memory is limited, and would count in the peak of the next
// database.
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
