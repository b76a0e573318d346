package lab

// Entries that expire: the Go side of crates/esker-bench-api/src/expiring.rs, which promises the same.
//
//	ExpiringEngine.OpenExpiring(dir) --> Expiring   Put with a time to live, Get, Scan
//
// Reads find an entry until a second before its time to live ends, and never after it has ended.

import "time"

// ExpiringEngine is an engine with such entries.
type ExpiringEngine interface {
	OpenExpiring(dir string, options OpenOptions) (Expiring, error)
}

// Expiring is an open database with one ordered map in it, whose entries may expire.
type Expiring interface {
	// PutFor puts one entry in a transaction of its own; with a ttl of 0 it never expires.
	PutFor(key, value []byte, ttl time.Duration) error
	Get(key []byte, visit func(value []byte)) (bool, error)
	// Scan shows all entries that have not expired, in key order.
	Scan(visit func(key, value []byte)) (uint64, error)
	Drain(deadline time.Time) error // as Store.Drain
	Close() error
}
