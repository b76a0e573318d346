package lab

// Transactions that read what they write: the Go side of crates/esker-bench-api/src/transactions.rs.
//
//	TransactionEngine.OpenTransactions --> Transactions --Transact(keys, work)--> Transaction   Get, Put
//	                                                    '-Scan-----------------> all items
//
// - Transact is one atomic transaction. It commits only if what it has read has not changed since.
// - An attempt that ends in a conflict has no effect. The adapter tries again, and counts the conflicts.

import "time"

// TransactionKind says how concurrent writers are kept apart, with the names of the Rust side.
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

// Transactions is an open database with one ordered map.
type Transactions interface {
	// Transact runs work in transactions until one commits, and returns the number of conflicts. keys are the
	// keys that work reads and writes, in order.
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
