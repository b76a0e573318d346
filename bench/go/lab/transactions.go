package lab

// Transactions that read what they write: the Go side of crates/esker-bench-api/src/transactions.rs, with the same invariants.
//
//	TransactionEngine.OpenTransactions(dir, kind) --> Transactions --Transact(keys, work)--> Transaction   Get, Put
//	                                                               '-Scan-----------------> the newest state, item by item
//
// TX1. Transact is one atomic transaction: it commits only if nobody has changed what it has read, since it read it.
// TX2. A try that ends in a conflict leaves nothing behind. The adapter tries again, and counts.

import (
	"slices"
	"time"
)

// TransactionKind says how writers keep out of each other's way, by the names of the Rust side.
type TransactionKind string

const (
	Optimistic TransactionKind = "optimistic"
	Locks      TransactionKind = "locks keys"
	OneWriter  TransactionKind = "one writer at a time"
)

// TransactionEngine is an engine with such transactions.
type TransactionEngine interface {
	TransactionKinds() []TransactionKind
	OpenTransactions(dir string, options OpenOptions, kind TransactionKind) (Transactions, error)
}

// Transactions is an open database with one ordered map in it.
type Transactions interface {
	// Transact runs work in a transaction, again until it meets no conflict, and returns how often it met one. keys are those that it
	// reads and writes, in key order.
	Transact(keys [][]byte, work func(Transaction) error) (conflicts uint64, err error)
	// Scan shows all items of the newest state, in key order.
	Scan(visit func(key, value []byte)) (uint64, error)
	Drain(deadline time.Time) error // as Store.Drain
	Close() error
}

// Transaction is the open transaction of a Transact.
type Transaction interface {
	Get(key []byte, visit func(value []byte)) (bool, error)
	Put(key, value []byte) error
}

// nearest is the kind of an engine that stands for the one that is asked for; false where it has none.
func (asked TransactionKind) nearest(kinds []TransactionKind) (TransactionKind, bool) {
	order := map[TransactionKind][]TransactionKind{
		Optimistic: {Optimistic, Locks, OneWriter}, Locks: {Locks, OneWriter, Optimistic}, OneWriter: {OneWriter, Locks, Optimistic},
	}[asked]
	found := slices.IndexFunc(order, func(kind TransactionKind) bool { return slices.Contains(kinds, kind) })
	if found < 0 {
		return "", false
	}
	return order[found], true
}
