package esker

import (
	"math"
	"sync/atomic"
	"time"
)

// Forever is the remaining lifetime of a key that does not expire.
const Forever time.Duration = math.MaxInt64

// Keyspace is an ordered map from keys to values: in a transaction (Tx.Keyspace), or outside of transactions
// (DB.Keyspace).
type Keyspace struct {
	// What ends before the keyspace may not be used: the transaction or the database.
	owner *owner
	db    *DB
	// nil outside of transactions.
	tx     *Tx
	handle *keyspaceHandle
	// Error of the last failed walk outside of transactions.
	failed atomic.Pointer[error]
}

// enter begins a call, and returns the transaction for C. `defer k.leave()` also keeps the handle alive.
func (k *Keyspace) enter() (cTxn, error) {
	if err := k.owner.enter(); err != nil {
		return nil, err
	}
	if k.tx == nil {
		return nil, nil
	}
	return k.tx.state.c, nil
}

func (k *Keyspace) leave() { k.owner.leave() }

// write runs a call that writes.
func (k *Keyspace) write(call func(cTxn) error) error {
	if k.tx == nil {
		k.db.commits <- struct{}{}
		defer func() { <-k.db.commits }()
	} else if k.tx.state.kind == ReadOnly {
		return failure(ErrReadOnly, "the transaction is read only")
	}
	txn, err := k.enter()
	if err != nil {
		return err
	}
	defer k.leave()
	return call(txn)
}

// ID returns the number of the keyspace, which the change feed uses. It stays when the keyspace is renamed.
func (k *Keyspace) ID() (uint32, error) {
	if _, err := k.enter(); err != nil {
		return 0, err
	}
	defer k.leave()
	return capiKeyspaceID(k.handle.c), nil
}

// Name returns the present name.
func (k *Keyspace) Name() (string, error) {
	if _, err := k.enter(); err != nil {
		return "", err
	}
	defer k.leave()
	return capiKeyspaceName(k.handle.c)
}

// Get returns the value of a key. Error: ErrNotFound.
func (k *Keyspace) Get(key []byte) ([]byte, error) {
	txn, err := k.enter()
	if err != nil {
		return nil, err
	}
	defer k.leave()
	return capiGet(k.handle.c, txn, key)
}

// GetMany returns the values of several keys of one state. Those of missing keys are nil.
func (k *Keyspace) GetMany(keys ...[]byte) ([][]byte, error) {
	txn, err := k.enter()
	if err != nil {
		return nil, err
	}
	defer k.leave()
	return capiGetMany(k.handle.c, txn, keys)
}

// Contains returns whether a key exists.
func (k *Keyspace) Contains(key []byte) (bool, error) {
	txn, err := k.enter()
	if err != nil {
		return false, err
	}
	defer k.leave()
	return is(capiContains(k.handle.c, txn, key), ErrNotFound)
}

// is makes a truth value of a status that stands for "no".
func is(err error, no Status) (bool, error) {
	if err == no {
		return false, nil
	}
	return err == nil, err
}

// TTL returns the remaining lifetime of a key, or Forever. Error: ErrNotFound.
func (k *Keyspace) TTL(key []byte) (time.Duration, error) {
	txn, err := k.enter()
	if err != nil {
		return 0, err
	}
	defer k.leave()
	ms, err := capiTTL(k.handle.c, txn, key)
	return lifetime(ms), err
}

// lifetime is that of milliseconds. Times beyond those that a Duration holds become Forever.
func lifetime(ms uint64) time.Duration {
	if ms > math.MaxInt64/uint64(time.Millisecond) {
		return Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// Len returns the exact number of keys. It does not read them.
func (k *Keyspace) Len() (uint64, error) {
	txn, err := k.enter()
	if err != nil {
		return 0, err
	}
	defer k.leave()
	return capiLen(k.handle.c, txn)
}

// ApproximateSize returns about how many bytes the keys from start on, below end, have on disk. nil: no
// bound.
func (k *Keyspace) ApproximateSize(start, end []byte) (uint64, error) {
	if _, err := k.enter(); err != nil {
		return 0, err
	}
	defer k.leave()
	return capiSize(k.handle.c, start, end)
}

// Put sets a key to a value.
func (k *Keyspace) Put(key, value []byte) error {
	return k.write(func(txn cTxn) error { return capiPut(k.handle.c, txn, key, value) })
}

// PutTTL sets a key to a value that expires after some time, in steps of a millisecond.
func (k *Keyspace) PutTTL(key, value []byte, ttl time.Duration) error {
	if ttl < 0 {
		return failure(ErrInvalid, "the lifetime %v is negative", ttl)
	}
	return k.write(func(txn cTxn) error { return capiPutTTL(k.handle.c, txn, key, value, milliseconds(ttl)) })
}

// Expire lets a key expire after some time, from now on, or never after Forever. Error: ErrNotFound.
func (k *Keyspace) Expire(key []byte, ttl time.Duration) error {
	if ttl < 0 {
		return failure(ErrInvalid, "the lifetime %v is negative", ttl)
	}
	ms := milliseconds(ttl)
	if ttl == Forever {
		ms = math.MaxUint64
	}
	return k.write(func(txn cTxn) error { return capiExpire(k.handle.c, txn, key, ms) })
}

// Persist lets a key live until it is removed. Error: ErrNotFound.
func (k *Keyspace) Persist(key []byte) error {
	return k.Expire(key, Forever)
}

// Merge merges an operand into a key by the keyspace's merge operator, without reading the key.
func (k *Keyspace) Merge(key, operand []byte) error {
	return k.write(func(txn cTxn) error { return capiMerge(k.handle.c, txn, key, operand) })
}

// Delete removes a key, whether it exists or not.
func (k *Keyspace) Delete(key []byte) error {
	return k.write(func(txn cTxn) error { return capiDelete(k.handle.c, txn, key) })
}

// Remove removes a key and returns the value that it had. Error: ErrNotFound.
func (k *Keyspace) Remove(key []byte) ([]byte, error) {
	var old []byte
	err := k.write(func(txn cTxn) (err error) {
		old, err = capiRemove(k.handle.c, txn, key)
		return err
	})
	return old, err
}

// DeleteRange removes the keys from start on, below end, at a cost that does not depend on their number. nil:
// no bound.
func (k *Keyspace) DeleteRange(start, end []byte) error {
	return k.write(func(txn cTxn) error { return capiDeleteRange(k.handle.c, txn, start, end) })
}

// DeletePrefix removes all keys that begin with a prefix.
func (k *Keyspace) DeletePrefix(prefix []byte) error {
	return k.write(func(txn cTxn) error { return capiDeletePrefix(k.handle.c, txn, prefix) })
}

// Add adds to a number and returns the sum, which wraps. The value has eight bytes (little-endian, two's
// complement); a missing key counts as 0.
func (k *Keyspace) Add(key []byte, by int64) (int64, error) {
	var old int64
	err := k.write(func(txn cTxn) (err error) {
		old, err = capiAdd(k.handle.c, txn, key, by)
		return err
	})
	if err != nil {
		return 0, err
	}
	return old + by, nil
}

// CompareAndSwap sets a key to a value if its value is the expected one, and returns whether it did. nil
// stands for no value: then the key must be missing, or is removed. The new value expires when the old one
// would.
func (k *Keyspace) CompareAndSwap(key, expected, value []byte) (bool, error) {
	err := k.write(func(txn cTxn) error { return capiSwap(k.handle.c, txn, key, expected, value) })
	return is(err, notSwapped)
}

// Lock locks a key until the transaction ends: others that lock it wait. It is not allowed outside of
// transactions. Errors: ErrDeadlock, ErrLockTimeout, ErrConflict.
func (k *Keyspace) Lock(key []byte) error { return k.lock(key, false) }

// RLock is Lock for readers: it excludes only Lock.
func (k *Keyspace) RLock(key []byte) error { return k.lock(key, true) }

func (k *Keyspace) lock(key []byte, shared bool) error {
	if k.tx == nil {
		return failure(ErrInvalid, "a lock needs a transaction")
	}
	return k.write(func(txn cTxn) error { return capiLock(k.handle.c, txn, key, shared) })
}

// With returns the keyspace with a durability of writes outside of transactions.
func (k *Keyspace) With(durability Durability) (*Keyspace, error) {
	if durability > NoWait {
		return nil, failure(ErrInvalid, "%d is no durability", durability)
	}
	if err := k.db.enter(); err != nil {
		return nil, err
	}
	defer k.db.leave()
	c, err := capiWith(k.handle.c, durability)
	if err != nil {
		return nil, err
	}
	return &Keyspace{owner: k.owner, db: k.db, tx: k.tx, handle: k.db.hold(c)}, nil
}

// configure runs a call that changes the keyspace for all, outside of transactions.
func (k *Keyspace) configure(call func(cKeyspace) error) error {
	if k.tx != nil {
		return failure(ErrInvalid, "a transaction cannot change the options of a keyspace: use DB.Keyspace")
	}
	return k.write(func(cTxn) error { return call(k.handle.c) })
}

// SetMergeOperator sets the merge operator of a keyspace without one: "add-i64", "append" or another one of
// the engine. It stays for ever.
func (k *Keyspace) SetMergeOperator(operator string) error {
	if err := checkText("the name of the operator", operator); err != nil {
		return err
	}
	return k.configure(func(c cKeyspace) error { return capiSetOperator(c, operator) })
}

// SetDefaultTTL sets the lifetime of entries that are put without one. 0: they do not expire.
func (k *Keyspace) SetDefaultTTL(ttl time.Duration) error {
	if ttl < 0 {
		return failure(ErrInvalid, "the lifetime %v is negative", ttl)
	}
	return k.configure(func(c cKeyspace) error { return capiSetDefaultTTL(c, milliseconds(ttl)) })
}

// SetBytesMax sets the size in bytes beyond which the oldest entries are removed. 0: unlimited.
func (k *Keyspace) SetBytesMax(size uint64) error {
	return k.configure(func(c cKeyspace) error { return capiSetBytesMax(c, size) })
}
