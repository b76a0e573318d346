package esker

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// TxKind says what a transaction may do.
type TxKind uint32

const (
	// TxDefault reads and writes with the isolation of the database.
	TxDefault TxKind = 0
	// Serializable reads and writes as if no other transaction ran at the same time.
	Serializable TxKind = 1
	// SnapshotIsolated reads and writes on a snapshot. It permits write skew.
	SnapshotIsolated TxKind = 2
	// Exclusive reads and writes while all other commits wait. It has no conflicts. Keyspaces must exist. A
	// write of its goroutine that is not part of it would wait for ever.
	Exclusive TxKind = 3
	// ReadOnly reads one state. Any number of goroutines may use it at the same time.
	ReadOnly TxKind = 4
	// WriteOnly writes without reading: a batch.
	WriteOnly TxKind = 5
)

// Tx is a transaction: reads and writes that belong together. Reads see the state at its beginning, and its
// own writes.
type Tx struct{ state *txState }

// txState is what the database knows of a transaction. It does not refer to the Tx, so that a Tx which the
// program has lost is collected, and rolled back.
type txState struct {
	owner
	db *DB
	// Valid while owner has not ended.
	c       cTxn
	kind    TxKind
	managed bool
	// Savepoints by their place in C, each with a number that is not used again.
	savepoints []uint64
	lastPoint  uint64
	hooks      []func()

	failedMu sync.Mutex
	failed   error
	// What ends the transaction of a ViewContext or UpdateContext. nil: nothing does.
	ctx context.Context
}

func (db *DB) begin(kind TxKind, managed bool) (*Tx, error) {
	if kind > WriteOnly {
		return nil, failure(ErrInvalid, "%d is no kind of transaction", kind)
	}
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	c, err := capiBegin(db.c, kind)
	if err != nil {
		return nil, err
	}
	state := &txState{owner: owner{shared: kind == ReadOnly}, db: db, c: c, kind: kind, managed: managed}
	db.lifeMu.Lock()
	isRefused := db.phase != isOpen && !managed
	if !isRefused {
		db.txns[state] = struct{}{}
	}
	db.lifeMu.Unlock()
	if isRefused {
		capiTxnFree(c)
		return nil, ErrClosed
	}
	tx := &Tx{state}
	if !managed {
		runtime.AddCleanup(tx, func(state *txState) { _ = state.finish(ErrTxDone) }, state)
	}
	return tx, nil
}

// finish ends the transaction without a commit. It returns the reason of an earlier end.
func (s *txState) finish(reason error) error {
	err := s.end(reason, func() error {
		capiTxnFree(s.c)
		s.c = nil
		return nil
	})
	s.forget()
	return err
}

// forget tells the database that the transaction has ended.
func (s *txState) forget() {
	s.db.lifeMu.Lock()
	defer s.db.lifeMu.Unlock()
	delete(s.db.txns, s)
}

func (s *txState) commit(durability Durability) (uint64, error) {
	seqno, err := s.commitHeld(durability)
	if err == nil {
		s.forget()
		for _, hook := range s.hooks {
			hook()
		}
	} else if errors.Is(err, ErrConflict) {
		s.forget()
	}
	return seqno, err
}

// commitHeld commits while no other call runs, and ends the transaction unless it can be committed again.
func (s *txState) commitHeld(durability Durability) (uint64, error) {
	if s.kind != ReadOnly && s.kind != Exclusive {
		// An exclusive one must not wait for commits that wait for it.
		s.db.commits <- struct{}{}
		defer func() { <-s.db.commits }()
	}
	if err := s.enterAlone(); err != nil {
		return 0, err
	}
	defer s.calls.Unlock()
	if err := s.error(); err != nil {
		return 0, err
	}
	s.releaseMembers()
	seqno, err := capiCommit(s.c, durability)
	if err == nil || errors.Is(err, ErrConflict) {
		// Other goroutines must not meet a transaction that C has committed.
		s.reason = ErrTxDone
		capiTxnFree(s.c)
		s.c = nil
	}
	return seqno, err
}

// note keeps the first error of a walk or cursor, which prevents the commit.
func (s *txState) note(err error) {
	s.failedMu.Lock()
	defer s.failedMu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

// error returns what prevents the commit.
func (s *txState) error() error {
	s.failedMu.Lock()
	defer s.failedMu.Unlock()
	if s.failed == nil {
		return s.interrupted()
	}
	return s.failed
}

// interrupted returns the error of a context that is done.
func (s *txState) interrupted() error {
	if s.ctx == nil {
		return nil
	}
	return s.ctx.Err()
}

// Commit commits the transaction with the durability of the database. ErrConflict: nothing was written, and
// the transaction has ended. After other errors, such as ErrNoSpace, it may be committed again.
func (tx *Tx) Commit() error {
	_, err := tx.CommitWith(DurabilityDefault)
	return err
}

// CommitWith commits the transaction with a durability, and returns the number of the commit.
func (tx *Tx) CommitWith(durability Durability) (uint64, error) {
	defer runtime.KeepAlive(tx)
	if tx.state.managed {
		return 0, failure(ErrInvalid, "View, Update and Batch end their transaction: return nil to commit it")
	}
	return tx.state.commit(durability)
}

// Rollback ends the transaction without a commit. After the end it returns ErrTxDone and has no effect.
func (tx *Tx) Rollback() error {
	defer runtime.KeepAlive(tx)
	if tx.state.managed {
		return failure(ErrInvalid, "View, Update and Batch end their transaction: return an error to roll back")
	}
	return tx.state.finish(ErrTxDone)
}

// Err returns the first error of a range or cursor of this transaction. It prevents the commit, and View and
// Update return it.
func (tx *Tx) Err() error { return tx.state.error() }

// OnCommit adds a function that is called after the transaction has committed.
func (tx *Tx) OnCommit(hook func()) {
	if tx.state.enter() == nil {
		defer tx.state.leave()
		tx.state.failedMu.Lock()
		defer tx.state.failedMu.Unlock()
		tx.state.hooks = append(tx.state.hooks, hook)
	}
}

// DB returns the database of the transaction.
func (tx *Tx) DB() *DB { return tx.state.db }

// Kind returns what the transaction may do.
func (tx *Tx) Kind() TxKind { return tx.state.kind }

// Seqno returns the number of the newest commit that the transaction reads, or 0 if it cannot read.
func (tx *Tx) Seqno() (uint64, error) {
	if err := tx.state.enter(); err != nil {
		return 0, err
	}
	defer tx.state.leave()
	defer runtime.KeepAlive(tx)
	return capiTxnSeqno(tx.state.c), nil
}

// Keyspace returns a keyspace in the transaction. A transaction that writes creates a missing one, at once
// and outside of the transaction. Exclusive and reading ones return ErrKeyspaceNotFound.
func (tx *Tx) Keyspace(name string) (*Keyspace, error) {
	if err := tx.state.enter(); err != nil {
		return nil, err
	}
	tx.state.leave()
	kind := tx.state.kind
	handle, err := tx.state.db.handle(name, kind != ReadOnly && kind != Exclusive)
	if err != nil {
		return nil, err
	}
	return &Keyspace{owner: &tx.state.owner, db: tx.state.db, tx: tx, handle: handle}, nil
}

// In returns a keyspace of the database in the transaction.
func (tx *Tx) In(keyspace *Keyspace) (*Keyspace, error) {
	if keyspace.db != tx.state.db {
		return nil, failure(ErrInvalid, "the keyspace and the transaction are of two databases")
	}
	return &Keyspace{owner: &tx.state.owner, db: keyspace.db, tx: tx, handle: keyspace.handle}, nil
}

// Savepoint is a state of a transaction to which RollbackTo returns.
type Savepoint struct {
	state  *txState
	number uint64
}

// Savepoint marks the present state of the transaction.
func (tx *Tx) Savepoint() (Savepoint, error) {
	s := tx.state
	if err := s.enterAlone(); err != nil {
		return Savepoint{}, err
	}
	defer s.calls.Unlock()
	defer runtime.KeepAlive(tx)
	if _, err := capiSavepoint(s.c); err != nil {
		return Savepoint{}, err
	}
	s.lastPoint++
	s.savepoints = append(s.savepoints, s.lastPoint)
	return Savepoint{s, s.lastPoint}, nil
}

// enterAlone is enter while no other call runs, also in a transaction that many goroutines may use.
func (s *txState) enterAlone() error {
	s.calls.Lock()
	if s.reason != nil {
		defer s.calls.Unlock()
		return s.reason
	}
	return nil
}

// RollbackTo undoes all writes since a savepoint. Later savepoints end, and this one stays.
func (tx *Tx) RollbackTo(savepoint Savepoint) error {
	s := tx.state
	if err := s.enterAlone(); err != nil {
		return err
	}
	defer s.calls.Unlock()
	defer runtime.KeepAlive(tx)
	for at, number := range s.savepoints {
		if savepoint.state == s && number == savepoint.number {
			s.savepoints = s.savepoints[:at+1]
			return capiRollbackTo(s.c, uint64(at+1))
		}
	}
	return failure(ErrInvalid, "the savepoint has ended, or is of another transaction")
}
