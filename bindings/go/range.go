package esker

import (
	"encoding/binary"
	"iter"
	"math"
)

const (
	firstChunk = 2 << 10
	chunkMax   = 64 << 10
	// Size of the lengths before each entry of a chunk.
	headerSize = 8
)

// RangeOption changes how a range is read. Options are combined by giving several.
type RangeOption uint64

const (
	// Reverse reads from the last key to the first.
	Reverse RangeOption = 1
	// KeysOnly reads no values: they are nil.
	KeysOnly RangeOption = 2

	flagBits = 2
)

// Limit ends a range after some entries. Nothing behind them is read, which makes short ranges faster than a
// loop that is left.
func Limit(entries int) RangeOption { return RangeOption(max(entries, 0)+1) << flagBits }

// walk says what is read.
type walk struct {
	start, end []byte
	isPrefix   bool
	flags      RangeOption
	limit      uint64
}

// Range returns the entries from start on, below end. nil: no bound. It sees the state at its begin. So in a
// transaction that writes, it does not see later writes.
//
//	for key, value := range users.Range(nil, nil, esker.Reverse) { ... }
//
// An error ends the loop. In a transaction, View, Update and Commit return it; see also Tx.Err. Outside of
// transactions Err returns it.
func (k *Keyspace) Range(start, end []byte, options ...RangeOption) iter.Seq2[[]byte, []byte] {
	return k.walk(walk{start: start, end: end}.with(options))
}

// Prefix returns the entries whose keys begin with a prefix, as Range does.
func (k *Keyspace) Prefix(prefix []byte, options ...RangeOption) iter.Seq2[[]byte, []byte] {
	return k.walk(walk{start: prefix, isPrefix: true}.with(options))
}

// All returns all entries, as Range does.
func (k *Keyspace) All(options ...RangeOption) iter.Seq2[[]byte, []byte] {
	return k.Range(nil, nil, options...)
}

// Keys returns the keys from start on, below end, as Range does.
func (k *Keyspace) Keys(start, end []byte, options ...RangeOption) iter.Seq[[]byte] {
	entries := k.Range(start, end, append(options, KeysOnly)...)
	return func(yield func([]byte) bool) {
		for key := range entries {
			if !yield(key) {
				return
			}
		}
	}
}

// Err returns the error of a range or cursor: of the transaction, or of the last one of this Keyspace that
// failed. Outside of transactions the error is forgotten then.
func (k *Keyspace) Err() error {
	if k.tx != nil {
		return k.tx.Err()
	}
	if err := k.failed.Swap(nil); err != nil {
		return *err
	}
	return nil
}

// interrupted returns the error of a context that has ended the transaction.
func (k *Keyspace) interrupted() error {
	if k.tx == nil {
		return nil
	}
	return k.tx.state.interrupted()
}

// fail keeps the error of a range or cursor.
func (k *Keyspace) fail(err error) {
	if k.tx != nil {
		k.tx.state.note(err)
	} else {
		k.failed.Store(&err)
	}
}

// with returns the walk with options: the smallest limit, and all flags.
func (w walk) with(options []RangeOption) walk {
	w.limit = math.MaxUint64
	for _, option := range options {
		if limit := uint64(option >> flagBits); limit > 0 {
			w.limit = min(w.limit, limit-1)
		}
		w.flags |= option & (Reverse | KeysOnly)
	}
	return w
}

func (k *Keyspace) walk(w walk) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		s := scan{keyspace: k, walk: w}
		defer s.close()
		for s.fill() {
			for rest := s.chunk; len(rest) > 0; {
				keyLen := int(binary.LittleEndian.Uint32(rest))
				end := headerSize + keyLen + int(binary.LittleEndian.Uint32(rest[4:]))
				key := rest[headerSize : headerSize+keyLen : headerSize+keyLen]
				value := rest[headerSize+keyLen : end : end]
				if w.flags&KeysOnly != 0 {
					value = nil
				}
				if rest = rest[end:]; !yield(key, value) {
					return
				}
			}
		}
	}
}

// scan reads a walk in chunks. Each chunk is new memory, which the yielded keys and values share.
type scan struct {
	keyspace *Keyspace
	walk     walk
	// nil before the begin, and after the end.
	iter  *iterState
	chunk []byte
	size  int
	done  bool
	// The error that follows the entries of the chunk.
	failed error
}

// iterState is what C has for a walk. It is freed with its owner, or by a commit, if the loop has not ended
// before. c is nil then: a transaction outlives a commit that fails.
type iterState struct{ c cIter }

func (s *iterState) release() {
	capiIterFree(s.c)
	s.c = nil
}

// fill reads the next chunk, and returns whether there is one.
func (s *scan) fill() bool {
	k := s.keyspace
	if s.failed != nil {
		k.fail(s.failed)
		s.failed = nil
	}
	if s.done {
		return false
	}
	txn, err := k.enter()
	if err != nil {
		s.done = true
		k.fail(err)
		return false
	}
	defer k.leave()
	if s.iter != nil && s.iter.c == nil {
		err = ErrTxDone
	} else {
		err = k.interrupted()
	}
	if err != nil {
		s.done = true
		k.fail(err)
		return false
	}
	s.size = min(max(s.size*4, firstChunk), chunkMax)
	got, err := s.read(txn)
	s.done = got.done || err != nil
	if got.count > 0 {
		s.failed = err
	} else if err != nil {
		k.fail(err)
		return false
	}
	s.chunk = s.chunk[:got.bytes]
	return got.count > 0
}

// read begins the walk or goes on with it. A chunk is larger if an entry needs it. It may return entries and
// the error that follows them.
func (s *scan) read(txn cTxn) (filled, error) {
	s.chunk = make([]byte, s.size)
	var got filled
	var err error
	if s.iter == nil {
		var c cIter
		c, got, err = capiWalk(s.keyspace.handle.c, txn, s.walk, s.chunk)
		if c != nil {
			s.iter = &iterState{c}
			s.keyspace.owner.add(s.iter)
		}
	} else {
		got, err = capiFill(s.iter.c, s.chunk)
	}
	if err == bufferTooSmall {
		s.chunk = make([]byte, got.bytes)
		got, err = capiFill(s.iter.c, s.chunk)
	}
	return got, err
}

// close frees the walk, unless its owner has.
func (s *scan) close() {
	if s.iter != nil && s.keyspace.owner.remove(s.iter) {
		s.iter.release()
	}
}
