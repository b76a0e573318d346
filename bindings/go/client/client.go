// Package client is a client of `esker serve` in pure Go, with the interface of package esker: DB, Tx and
// Keyspace.
//
// The server has no lifetimes for the keys of keyspaces, and its own durability for all commits. So PutTTL,
// TTL, batches and durabilities are missing here. A range in a transaction that writes sees the later writes
// of the transaction.
//
// If another client drops or renames a keyspace, connections that use it keep the old one until they end.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"esker.dev/esker/internal/status"
)

// Status says how a call failed: that of package esker.
type Status = status.Status

// What errors.Is finds in the errors of this package. They are those of package esker.
const (
	ErrNotFound         = status.NotFound
	ErrInvalid          = status.Invalid
	ErrIO               = status.IO
	ErrReadOnly         = status.ReadOnly
	ErrConflict         = status.Conflict
	ErrDeadlock         = status.Deadlock
	ErrLockTimeout      = status.LockTimeout
	ErrPoisoned         = status.Poisoned
	ErrKeyspaceNotFound = status.KeyspaceNotFound
	ErrGone             = status.Gone
	ErrFeedAhead        = status.FeedAhead
	ErrClosed           = status.Closed
	ErrTxDone           = status.TxDone
	ErrOther            = status.Other
)

// Error is an error of the server or of a connection.
type Error struct {
	// Code says how the call failed.
	Code Status
	// Message is what the server says.
	Message string
	cause   error
}

// Error returns the message.
func (e *Error) Error() string { return "esker: " + e.Message }

// Unwrap returns the status, and the error of the connection.
func (e *Error) Unwrap() []error {
	if e.cause != nil {
		return []error{e.Code, e.cause}
	}
	return []error{e.Code}
}

// Options says how the client connects.
type Options struct {
	// User and Password log each connection in. Without a user: "default".
	User, Password string
	// TLS encrypts connections, if it is not nil.
	TLS *tls.Config
	// DialTimeout is how long a connection may take. 0: 10 seconds.
	DialTimeout time.Duration
	// IdleMax is how many unused connections are kept. 0: 16.
	IdleMax int
}

// DB is a database of a server. Any number of goroutines may use it. Each transaction, and each call that
// runs, has a connection of its own.
type DB struct {
	address string
	options Options

	mu     sync.Mutex
	closed bool
	idle   []*conn
	// Counts drops and renames, after which connections choose their keyspace again.
	catalog int
	// Connections in use, which Close ends.
	used map[*conn]struct{}
}

// Open connects to a server, at "host:port". options may be nil.
func Open(address string, options *Options) (*DB, error) {
	db := &DB{address: address, used: map[*conn]struct{}{}}
	if options != nil {
		db.options = *options
	}
	if db.options.DialTimeout == 0 {
		db.options.DialTimeout = 10 * time.Second
	}
	if db.options.IdleMax == 0 {
		db.options.IdleMax = 16
	}
	c, err := db.take()
	if err != nil {
		return nil, err
	}
	db.give(c)
	return db, nil
}

// Close ends all connections. Calls that run, and later ones, fail.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.closed = true
	for _, c := range db.idle {
		_ = c.net.Close()
	}
	for c := range db.used {
		_ = c.net.Close()
	}
	db.idle = nil
	return nil
}

// take returns an idle connection or a new one.
func (db *DB) take() (*conn, error) {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil, ErrClosed
	}
	if last := len(db.idle) - 1; last >= 0 {
		c := db.idle[last]
		db.idle = db.idle[:last]
		db.used[c] = struct{}{}
		db.mu.Unlock()
		return c, nil
	}
	db.mu.Unlock()
	c, err := dial(db.address, &db.options)
	if err != nil {
		var refused *Error
		if !errors.As(err, &refused) {
			err = &Error{Code: ErrIO, Message: err.Error(), cause: err}
		}
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		_ = c.net.Close()
		return nil, ErrClosed
	}
	db.used[c] = struct{}{}
	return c, nil
}

// give returns a connection that holds no transaction and no snapshot.
func (db *DB) give(c *conn) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.used, c)
	if c.broken || db.closed || len(db.idle) >= db.options.IdleMax {
		_ = c.net.Close()
		return
	}
	db.idle = append(db.idle, c)
}

// drop ends a connection and what it holds.
func (db *DB) drop(c *conn) {
	c.broken = true
	db.give(c)
}

// with runs a body with a connection.
func (db *DB) with(body func(*conn) error) error { return db.withContext(context.Background(), body) }

// withContext runs a body with a connection that ends with a context.
func (db *DB) withContext(ctx context.Context, body func(*conn) error) error {
	c, err := db.take()
	if err != nil {
		return err
	}
	detach := context.AfterFunc(ctx, func() { _ = c.net.Close() })
	defer func() {
		c.broken = !detach() || c.broken
		db.give(c)
	}()
	return reason(ctx, body(c))
}

func (db *DB) run(words ...any) error {
	return db.with(func(c *conn) error {
		_, err := c.call(words...)
		return err
	})
}

// Keyspaces returns the names of all keyspaces in their order.
func (db *DB) Keyspaces() ([]string, error) { return db.keyspaces(context.Background()) }

func (db *DB) keyspaces(ctx context.Context) ([]string, error) {
	names := []string{}
	err := db.withContext(ctx, func(c *conn) error {
		reply, err := c.call("ES.KS", "LIST")
		items, _ := reply.([]any)
		for _, item := range items {
			name, _ := item.([]byte)
			names = append(names, string(name))
		}
		return err
	})
	return names, err
}

// Keyspace returns a keyspace outside of transactions, and creates it if it is missing.
func (db *DB) Keyspace(name string) (*Keyspace, error) {
	return db.keyspace(context.Background(), name)
}

func (db *DB) keyspace(ctx context.Context, name string) (*Keyspace, error) {
	err := db.withContext(ctx, func(c *conn) error {
		_, err := c.call("ES.KS", "CREATE", name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Keyspace{db: db, name: name}, nil
}

// FindKeyspace is Keyspace, but does not create it. Error: ErrKeyspaceNotFound.
func (db *DB) FindKeyspace(name string) (*Keyspace, error) {
	return db.findKeyspace(context.Background(), name)
}

func (db *DB) findKeyspace(ctx context.Context, name string) (*Keyspace, error) {
	names, err := db.keyspaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, there := range names {
		if there == name {
			return &Keyspace{db: db, name: name}, nil
		}
	}
	return nil, &Error{Code: ErrKeyspaceNotFound, Message: "there is no keyspace " + name}
}

// DropKeyspace drops a keyspace with all its entries.
func (db *DB) DropKeyspace(name string) error {
	defer db.catalogChanged()
	return db.run("ES.KS", "DROP", name)
}

func (db *DB) catalogChanged() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.catalog++
}

func (db *DB) catalogNumber() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.catalog
}

// RenameKeyspace renames a keyspace.
func (db *DB) RenameKeyspace(from, to string) error {
	defer db.catalogChanged()
	return db.run("ES.KS", "RENAME", from, to)
}

// Sync makes all earlier commits durable.
func (db *DB) Sync() error { return db.run("ES.SYNC") }

// Compact compacts the whole database.
func (db *DB) Compact() error { return db.run("ES.COMPACT") }

// View runs a function in a transaction that reads one state of the database, and returns its error.
func (db *DB) View(fn func(*Tx) error) error { return db.ViewContext(context.Background(), fn) }

// ViewContext is View until the context is done. That ends the connection of the transaction, so its calls
// fail, and ViewContext returns the error of the context once the function has returned.
func (db *DB) ViewContext(ctx context.Context, fn func(*Tx) error) error {
	tx, err := db.begin(ctx, ReadOnly)
	if err != nil {
		return err
	}
	tx.managed = true
	defer tx.end()
	err = fn(tx)
	if err == nil {
		err = tx.Err()
	}
	return reason(ctx, err)
}

// reason returns the error of a context that is done in place of that of the connection which it has ended.
func reason(ctx context.Context, err error) error {
	if errors.Is(err, ErrIO) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Update runs a function in a serializable transaction and commits it. If the function returns an error or
// panics, nothing is written. After a conflict or deadlock the function runs again, until it commits.
func (db *DB) Update(fn func(*Tx) error) error { return db.UpdateContext(context.Background(), fn) }

// UpdateContext is Update until the context is done. That ends the connection of the transaction, so its
// calls fail, the function does not run again, and nothing is written: the error is that of the context. A
// commit that has begun is not interrupted.
func (db *DB) UpdateContext(ctx context.Context, fn func(*Tx) error) error {
	for longest := 100 * time.Microsecond; ; longest = min(2*longest, 20*time.Millisecond) {
		err := db.attempt(ctx, fn)
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrDeadlock) {
			return err
		}
		select {
		case <-time.After(rand.N(longest)):
		case <-ctx.Done():
		}
	}
}

func (db *DB) attempt(ctx context.Context, fn func(*Tx) error) error {
	tx, err := db.begin(ctx, Serializable)
	if err != nil {
		return err
	}
	tx.managed = true
	defer tx.end()
	err = fn(tx)
	if err == nil {
		err = tx.Err()
	}
	if err != nil {
		return reason(ctx, err)
	}
	return tx.commit()
}
