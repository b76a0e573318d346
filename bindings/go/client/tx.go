package client

import (
	"context"
	"strconv"
	"sync"
)

// TxKind says what a transaction may do.
type TxKind int

const (
	// Serializable reads and writes as if no other transaction ran at the same time.
	Serializable TxKind = iota
	// SnapshotIsolated reads and writes on a snapshot. It permits write skew.
	SnapshotIsolated
	// ReadOnly reads one state.
	ReadOnly
)

// Tx is a transaction. It has a connection until it ends. Its calls wait for each other.
type Tx struct {
	db      *DB
	kind    TxKind
	managed bool

	mu sync.Mutex
	// nil: the transaction has ended.
	c *conn
	// Returns false if the context has ended the connection.
	detach func() bool
	ctx    context.Context
	points int
	failed error
}

// Begin begins a transaction, which must end by Commit or Rollback.
func (db *DB) Begin(kind TxKind) (*Tx, error) { return db.begin(context.Background(), kind) }

// begin begins a transaction whose connection ends with a context.
func (db *DB) begin(ctx context.Context, kind TxKind) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := db.take()
	if err != nil {
		return nil, err
	}
	detach := context.AfterFunc(ctx, func() { _ = c.net.Close() })
	isolation := "SNAPSHOT"
	if kind == Serializable {
		isolation = "SERIALIZABLE"
	}
	if _, err := c.call("ES.BEGIN", isolation); err != nil {
		c.broken = !detach() || c.broken
		db.give(c)
		return nil, reason(ctx, err)
	}
	return &Tx{db: db, kind: kind, c: c, ctx: ctx, detach: detach}, nil
}

// Snapshot begins a transaction that reads the present state. Rollback ends it.
func (db *DB) Snapshot() (*Tx, error) { return db.Begin(ReadOnly) }

// do runs a body with the connection of the transaction.
func (tx *Tx) do(body func(*conn) error) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.c == nil {
		return ErrTxDone
	}
	return body(tx.c)
}

func (tx *Tx) commit() error {
	if err := tx.Err(); err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.c == nil {
		return ErrTxDone
	}
	c := tx.c
	tx.c = nil
	if !tx.detach() {
		tx.db.drop(c)
		return tx.ctx.Err()
	}
	_, err := c.call("ES.COMMIT")
	if err != nil {
		// The transaction may be open still.
		tx.db.drop(c)
	} else {
		tx.db.give(c)
	}
	return err
}

// end ends the transaction without a commit, unless it has ended.
func (tx *Tx) end() error {
	return tx.do(func(c *conn) error {
		tx.c = nil
		if !tx.detach() {
			tx.db.drop(c)
			return nil
		}
		if _, err := c.call("ES.ROLLBACK"); err != nil {
			tx.db.drop(c)
			return nil
		}
		tx.db.give(c)
		return nil
	})
}

func (tx *Tx) ownEnd() error {
	if tx.managed {
		return &Error{Code: ErrInvalid, Message: "View and Update end their transaction"}
	}
	return nil
}

// Commit commits the transaction, which ends in any case. ErrConflict: nothing was written.
func (tx *Tx) Commit() error {
	if err := tx.ownEnd(); err != nil {
		return err
	}
	return tx.commit()
}

// Rollback ends the transaction without a commit. After the end it returns ErrTxDone.
func (tx *Tx) Rollback() error {
	if err := tx.ownEnd(); err != nil {
		return err
	}
	return tx.end()
}

// Err returns the first error of a range of this transaction. It prevents the commit.
func (tx *Tx) Err() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.failed
}

// Keyspace returns a keyspace in the transaction. A transaction that writes creates a missing one, at once
// and outside of the transaction.
func (tx *Tx) Keyspace(name string) (*Keyspace, error) {
	find := tx.db.keyspace
	if tx.kind == ReadOnly {
		find = tx.db.findKeyspace
	}
	ks, err := find(tx.ctx, name)
	if err != nil {
		return nil, err
	}
	return tx.In(ks)
}

// In returns a keyspace of the database in the transaction.
func (tx *Tx) In(ks *Keyspace) (*Keyspace, error) {
	return &Keyspace{db: tx.db, tx: tx, name: ks.name}, tx.do(func(*conn) error { return nil })
}

// Savepoint is a state of a transaction to which RollbackTo returns.
type Savepoint struct{ name string }

// Savepoint marks the present state of the transaction.
func (tx *Tx) Savepoint() (Savepoint, error) {
	var point Savepoint
	err := tx.do(func(c *conn) error {
		tx.points++
		point.name = "p" + strconv.Itoa(tx.points)
		_, err := c.call("ES.SAVEPOINT", point.name)
		return err
	})
	return point, err
}

// RollbackTo undoes all writes since a savepoint. Later savepoints end, and this one stays.
func (tx *Tx) RollbackTo(point Savepoint) error {
	return tx.do(func(c *conn) error {
		_, err := c.call("ES.ROLLBACK", "TO", point.name)
		return err
	})
}
