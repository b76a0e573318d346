package esker

import (
	"runtime"
	"sync"
)

// Cursor is a position among the keys of a keyspace. It moves both ways and sees the state at the time when
// it was made. Its methods return the key and the value at the new position, or nil as the key if there is
// none. After an error the key is nil, too: see Err.
//
//	for key, value := cursor.First(); key != nil; key, value = cursor.Next() { ... }
type Cursor struct {
	keyspace *Keyspace
	mu       sync.Mutex
	state    *cursorState
	key      []byte
	err      error
}

// cursorState is what C has for a cursor. It is freed with its owner, by a commit, by Close, or when the
// Cursor is lost. c is nil then: a transaction outlives a commit that fails.
type cursorState struct{ c cCursor }

func (s *cursorState) release() {
	capiCursorFree(s.c)
	s.c = nil
}

// Cursor makes a cursor at no key. It ends with the transaction or database, by Close, or by a commit. That a
// commit fails does not matter.
func (k *Keyspace) Cursor() *Cursor {
	c := &Cursor{keyspace: k}
	txn, err := k.enter()
	if err != nil {
		c.fail(err)
		return c
	}
	defer k.leave()
	cursor, err := capiCursor(k.handle.c, txn)
	if err != nil {
		c.fail(err)
		return c
	}
	c.state = &cursorState{cursor}
	k.owner.add(c.state)
	owner := k.owner
	runtime.AddCleanup(c, func(state *cursorState) {
		if owner.remove(state) {
			state.release()
		}
	}, c.state)
	return c
}

func (c *Cursor) fail(err error) {
	c.err = err
	c.keyspace.fail(err)
}

// Err returns the error of the last move, if it failed. In a transaction, View, Update and Commit return it.
func (c *Cursor) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close frees the cursor before its transaction ends. Later moves fail with ErrTxDone.
func (c *Cursor) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != nil && c.keyspace.owner.remove(c.state) {
		c.state.release()
	}
	c.state, c.key = nil, nil
	if c.err == nil {
		c.err = ErrTxDone
	}
}

func (c *Cursor) move(move int, to []byte) ([]byte, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key = nil
	if c.state == nil {
		return nil, nil
	}
	if _, err := c.keyspace.enter(); err != nil {
		c.fail(err)
		return nil, nil
	}
	defer c.keyspace.leave()
	if c.state.c == nil {
		c.err = ErrTxDone
		return nil, nil
	}
	if err := c.keyspace.interrupted(); err != nil {
		c.fail(err)
		return nil, nil
	}
	key, value, err := capiMove(c.state.c, move, to)
	switch err {
	case nil:
		c.key, c.err = key, nil
	case ErrNotFound:
		c.err = nil
	default:
		c.fail(err)
	}
	return key, value
}

// First moves to the first key.
func (c *Cursor) First() (key, value []byte) { return c.move(moveFirst, nil) }

// Last moves to the last key.
func (c *Cursor) Last() (key, value []byte) { return c.move(moveLast, nil) }

// Next moves to the next key.
func (c *Cursor) Next() (key, value []byte) { return c.move(moveNext, nil) }

// Prev moves to the key before.
func (c *Cursor) Prev() (key, value []byte) { return c.move(movePrev, nil) }

// Seek moves to the first key that is the given one or follows it.
func (c *Cursor) Seek(key []byte) (found, value []byte) { return c.move(moveSeek, key) }

// SeekBefore moves to the last key before the given one.
func (c *Cursor) SeekBefore(key []byte) (found, value []byte) { return c.move(moveUnder, key) }

// Delete removes the key at the cursor. The cursor stays, and does not see the removal.
func (c *Cursor) Delete() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == nil {
		return failure(ErrInvalid, "the cursor is at no key")
	}
	return c.keyspace.Delete(c.key)
}
