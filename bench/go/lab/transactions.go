package lab

// Transactions that read what they write: the Go side of crates/esker-bench-api/src/transactions.rs, with the same invariants.
//
//	TransactionEngine.OpenTransactions(dir, kind) --> Transactions --Transact(keys, work)--> Transaction   Get, Put
//	                                                               '-Scan-----------------> the newest state, item by item
//
// TX1. Transact is one atomic transaction: it commits only if what it has read did not change since.
// TX2. A try that ends in a conflict leaves nothing behind. The adapter tries again, and counts.

import "time"

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
