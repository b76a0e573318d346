package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
)

// Number of entries that a range asks for at a time.
const pageMax = 512

// Keyspace is an ordered map from keys to values: in a transaction, or outside of transactions, where each
// read sees the newest state, and each write is a commit of its own.
type Keyspace struct {
	db     *DB
	tx     *Tx
	name   string
	failed atomic.Pointer[error]
}

// Name returns the name.
func (k *Keyspace) Name() string { return k.name }

// do runs a body with a connection that uses the keyspace.
func (k *Keyspace) do(body func(*conn) error) error {
	use := func(c *conn) error {
		if catalog := k.db.catalogNumber(); c.keyspace != k.name || c.catalog != catalog {
			if _, err := c.call("ES.KS", "USE", k.name); err != nil {
				return err
			}
			c.keyspace, c.catalog = k.name, catalog
		}
		return body(c)
	}
	if k.tx != nil {
		return k.tx.do(use)
	}
	return k.db.with(use)
}

func (k *Keyspace) call(words ...any) (any, error) {
	var reply any
	err := k.do(func(c *conn) (err error) {
		reply, err = c.call(words...)
		return err
	})
	return reply, err
}

func (k *Keyspace) write(words ...any) (any, error) {
	if k.tx != nil && k.tx.kind == ReadOnly {
		return nil, &Error{Code: ErrReadOnly, Message: "the transaction is read only"}
	}
	return k.call(words...)
}

// Get returns the value of a key. Error: ErrNotFound.
func (k *Keyspace) Get(key []byte) ([]byte, error) {
	reply, err := k.call("ES.GET", key)
	if err != nil {
		return nil, err
	}
	value, ok := reply.([]byte)
	if !ok {
		return nil, ErrNotFound
	}
	return value, nil
}

// GetMany returns the values of several keys, in one round trip. Those of missing keys are nil. Outside of a
// transaction each is of the newest state.
func (k *Keyspace) GetMany(keys ...[]byte) ([][]byte, error) {
	values := make([][]byte, len(keys))
	err := k.do(func(c *conn) error {
		for _, key := range keys {
			c.send("ES.GET", key)
		}
		err := c.flush()
		for at := range keys {
			reply, failed := c.receive()
			values[at], _ = reply.([]byte)
			err = errors.Join(err, failed)
		}
		return err
	})
	return values, err
}

// Contains returns whether a key exists.
func (k *Keyspace) Contains(key []byte) (bool, error) {
	_, err := k.Get(key)
	if err == ErrNotFound {
		return false, nil
	}
	return err == nil, err
}

// Len returns the exact number of keys.
func (k *Keyspace) Len() (uint64, error) {
	reply, err := k.call("ES.COUNT")
	count, _ := reply.(int64)
	return uint64(count), err
}

// Put sets a key to a value.
func (k *Keyspace) Put(key, value []byte) error {
	_, err := k.write("ES.SET", key, value)
	return err
}

// Merge merges an operand into a key by the keyspace's merge operator, without reading the key.
func (k *Keyspace) Merge(key, operand []byte) error {
	_, err := k.write("ES.MERGE", key, operand)
	return err
}

// Delete removes a key, whether it exists or not.
func (k *Keyspace) Delete(key []byte) error {
	_, err := k.write("ES.DEL", key)
	return err
}

// DeleteRange removes the keys from start on, below end. nil: no bound. The server reads the keys.
func (k *Keyspace) DeleteRange(start, end []byte) error {
	if end != nil && len(end) == 0 {
		return nil
	}
	_, err := k.write("ES.DELRANGE", start, end)
	return err
}

// CompareAndSwap sets a key to a value if its value is the expected one, and returns whether it did. nil
// stands for no value: then the key must be missing, or is removed.
func (k *Keyspace) CompareAndSwap(key, expected, value []byte) (bool, error) {
	words := []any{"ES.CAS", key, "NONE"}
	if expected != nil {
		words = []any{"ES.CAS", key, "EQ", expected}
	}
	if value != nil {
		words = append(words, "SET", value)
	} else {
		words = append(words, "DEL")
	}
	reply, err := k.write(words...)
	return reply == int64(1), err
}

// Add adds to a number and returns the sum, which wraps. The value has eight bytes (little-endian, two's
// complement); a missing key counts as 0.
func (k *Keyspace) Add(key []byte, by int64) (int64, error) {
	for {
		old, err := k.Get(key)
		if err != nil && err != ErrNotFound {
			return 0, err
		}
		if old != nil && len(old) != 8 {
			return 0, &Error{Code: ErrInvalid, Message: fmt.Sprintf("a number of %d bytes", len(old))}
		}
		sum := by
		if old != nil {
			sum += int64(binary.LittleEndian.Uint64(old))
		}
		swapped, err := k.CompareAndSwap(key, old, binary.LittleEndian.AppendUint64(nil, uint64(sum)))
		if err != nil || swapped {
			return sum, err
		}
	}
}

// SetMergeOperator sets the merge operator of a keyspace without one. It stays for ever.
func (k *Keyspace) SetMergeOperator(operator string) error {
	return k.db.run("ES.KS", "OPERATOR", k.name, operator)
}

// RangeOption changes how a range is read.
type RangeOption uint64

const (
	// Reverse reads from the last key to the first.
	Reverse RangeOption = 1
	// KeysOnly reads no values: they are nil.
	KeysOnly RangeOption = 2

	flagBits = 2
)

// Limit ends a range after some entries. Nothing behind them is read.
func Limit(entries int) RangeOption { return RangeOption(max(entries, 0)+1) << flagBits }

// Range returns the entries from start on, below end, in pages. nil: no bound. Outside of a transaction it
// sees the state at its begin. An error ends the loop: see Err.
func (k *Keyspace) Range(start, end []byte, options ...RangeOption) iter.Seq2[[]byte, []byte] {
	p := page{start: start, end: end, left: math.MaxInt}
	for _, option := range options {
		if limit := int(option >> flagBits); limit > 0 {
			p.left = min(p.left, limit-1)
		}
		p.options |= option & (Reverse | KeysOnly)
	}
	return func(yield func([]byte, []byte) bool) {
		if p.left == 0 || end != nil && len(end) == 0 {
			return
		}
		if err := k.walk(p, yield); err != nil {
			k.fail(err)
		}
	}
}

// Prefix returns the entries whose keys begin with a prefix, as Range does.
func (k *Keyspace) Prefix(prefix []byte, options ...RangeOption) iter.Seq2[[]byte, []byte] {
	return k.Range(prefix, after(prefix), options...)
}

// All returns all entries, as Range does.
func (k *Keyspace) All(options ...RangeOption) iter.Seq2[[]byte, []byte] {
	return k.Range(nil, nil, options...)
}

// after returns the first key behind those with a prefix, or nil if there is none.
func after(prefix []byte) []byte {
	for at := len(prefix) - 1; at >= 0; at-- {
		if prefix[at] != 0xFF {
			end := bytes.Clone(prefix[:at+1])
			end[at]++
			return end
		}
	}
	return nil
}

// Err returns the error of the transaction, or of the last range of this Keyspace that failed, once.
func (k *Keyspace) Err() error {
	if k.tx != nil {
		return k.tx.Err()
	}
	if err := k.failed.Swap(nil); err != nil {
		return *err
	}
	return nil
}

func (k *Keyspace) fail(err error) {
	if k.tx == nil {
		k.failed.Store(&err)
		return
	}
	k.tx.mu.Lock()
	defer k.tx.mu.Unlock()
	if k.tx.failed == nil {
		k.tx.failed = err
	}
}

// page is the next part of a range.
type page struct {
	start, end []byte
	options    RangeOption
	// Number of entries after which the range ends.
	left    int
	isLater bool
}

// size returns how many entries the page has at most.
func (p *page) size() int { return min(pageMax, p.left) }

func (p *page) words() []any {
	words := []any{"ES.RANGE", p.start, p.end, "LIMIT", fmt.Sprint(p.size())}
	if p.options&Reverse != 0 {
		words = append(words, "REV")
	} else if p.isLater {
		words = append(words, "EXCL")
	}
	if p.options&KeysOnly != 0 {
		words = append(words, "KEYS")
	}
	return words
}

// walk passes all entries to yield. Outside of transactions it reads a snapshot, which a connection holds.
func (k *Keyspace) walk(p page, yield func([]byte, []byte) bool) error {
	if k.tx != nil {
		return p.each(yield, func(words []any) (any, error) { return k.call(words...) })
	}
	return k.do(func(c *conn) error {
		id, err := c.call("ES.SNAP", "OPEN")
		if err != nil {
			return err
		}
		defer func() {
			if _, err := c.call("ES.SNAP", "CLOSE", fmt.Sprint(id)); err != nil {
				c.broken = true
			}
		}()
		return p.each(yield, func(words []any) (any, error) {
			return c.call(append(words, "SNAP", fmt.Sprint(id))...)
		})
	})
}

func (p *page) each(yield func([]byte, []byte) bool, call func([]any) (any, error)) error {
	step := 2
	if p.options&KeysOnly != 0 {
		step = 1
	}
	for {
		reply, err := call(p.words())
		items, _ := reply.([]any)
		if err != nil {
			return err
		}
		if len(items)%step != 0 {
			return &Error{Code: ErrOther, Message: "the reply to a range is not one"}
		}
		var key, value []byte
		for ; len(items) > 0; items = items[step:] {
			key, _ = items[0].([]byte)
			if step == 2 {
				value, _ = items[1].([]byte)
			}
			if !yield(key, value) {
				return nil
			}
		}
		array, _ := reply.([]any)
		if p.left -= len(array) / step; p.left <= 0 || len(array) < pageMax*step {
			return nil
		}
		// An empty end has no bound, and nothing is below the empty key.
		if p.options&Reverse != 0 && len(key) == 0 {
			return nil
		}
		if p.isLater = true; p.options&Reverse != 0 {
			p.end = key
		} else {
			p.start = key
		}
	}
}
