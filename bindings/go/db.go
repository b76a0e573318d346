package esker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// Number of writes that may wait for the disk at the same time. Each occupies a thread, and Go ends a
	// process with 10,000 of them.
	commitsMax = 256
	// Number of conflicts after which Update makes other commits wait.
	attemptsBeforeTurn = 8
	backOffMax         = 10 * time.Millisecond
)

// phase is the part of the life of a DB.
type phase int

const (
	isOpen phase = iota
	// Close waits for the functions of View, Update and Batch; nothing else begins.
	isDraining
	isEnded
)

// DB is an open database. Any number of goroutines may use it.
//
// c is valid while owner has not ended. Transactions end before owner, keyspace handles with it.
type DB struct {
	owner
	c       cDB
	path    string
	options *Options

	lifeMu sync.Mutex
	phase  phase
	// Functions of View, Update and Batch that run.
	managed int
	drained *sync.Cond
	txns    map[*txState]struct{}

	namesMu sync.Mutex
	names   map[string]*keyspaceHandle

	commits chan struct{}
	// Full while an Update makes other commits wait.
	turn chan struct{}
}

// Open opens the database in a directory. A missing one is created. options may be nil.
//
// Errors: ErrLocked if it is open elsewhere, ErrNoDatabase, ErrCorrupt, ErrEncryption, ErrIO, ErrNoSpace.
func Open(path string, options *Options) (*DB, error) {
	checked, err := options.checked(path)
	if err != nil {
		return nil, err
	}
	return open(path, checked)
}

// OpenInMemory opens a database in memory, which ends when it is closed. options may be nil.
func OpenInMemory(options *Options) (*DB, error) {
	checked, err := options.checked("")
	if err != nil {
		return nil, err
	}
	checked.inMemory = true
	return open("", checked)
}

func open(path string, options *Options) (*DB, error) {
	c, err := capiOpen(path, options)
	if err != nil {
		return nil, err
	}
	db := &DB{
		owner:   owner{shared: true},
		c:       c,
		path:    path,
		options: options,
		txns:    map[*txState]struct{}{},
		names:   map[string]*keyspaceHandle{},
		commits: make(chan struct{}, commitsMax),
		turn:    make(chan struct{}, 1),
	}
	db.drained = sync.NewCond(&db.lifeMu)
	return db, nil
}

// Path returns the directory of the database, or "" in memory.
func (db *DB) Path() string { return db.path }

// Close makes all commits durable and closes the database.
//
// It rolls back transactions made by Begin and Snapshot, and ends cursors and feeds: their calls return
// ErrClosed. It waits for functions of View, Update and Batch that run, so it must not be called by one.
func (db *DB) Close() error {
	db.lifeMu.Lock()
	if db.phase != isOpen {
		for db.phase != isEnded {
			db.drained.Wait()
		}
		db.lifeMu.Unlock()
		return nil
	}
	db.phase = isDraining
	var begun []*txState
	for txn := range db.txns {
		if !txn.managed {
			begun = append(begun, txn)
		}
	}
	db.lifeMu.Unlock()

	// At the same time, since calls of one may wait for the locks of another.
	var ends sync.WaitGroup
	for _, txn := range begun {
		ends.Go(func() { _ = txn.finish(ErrClosed) })
	}
	ends.Wait()

	db.lifeMu.Lock()
	for db.managed > 0 {
		db.drained.Wait()
	}
	db.lifeMu.Unlock()
	err := db.end(ErrClosed, func() error { return capiClose(db.c) })
	// Cleanups of handles refer to the database. If it referred to the handles, neither would be collected.
	db.namesMu.Lock()
	clear(db.names)
	db.namesMu.Unlock()
	db.lifeMu.Lock()
	db.phase = isEnded
	db.drained.Broadcast()
	db.lifeMu.Unlock()
	return err
}

// run runs a body that Close waits for.
func (db *DB) run(body func() error) error {
	db.lifeMu.Lock()
	if db.phase != isOpen {
		db.lifeMu.Unlock()
		return ErrClosed
	}
	db.managed++
	db.lifeMu.Unlock()
	defer func() {
		db.lifeMu.Lock()
		defer db.lifeMu.Unlock()
		db.managed--
		db.drained.Broadcast()
	}()
	return body()
}

// View runs a function in a transaction that reads one state of the database, and returns its error.
func (db *DB) View(fn func(*Tx) error) error { return db.ViewContext(context.Background(), fn) }

// ViewContext is View until the context is done. Then ranges and cursors of the transaction end, and
// ViewContext returns the error of the context once the function has returned.
func (db *DB) ViewContext(ctx context.Context, fn func(*Tx) error) error {
	return db.run(func() error {
		tx, err := db.beginContext(ctx, ReadOnly)
		if err != nil {
			return err
		}
		defer tx.state.finish(ErrTxDone)
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Err()
	})
}

// Update runs a function in a transaction and commits it. If the function returns an error or panics, nothing
// is written.
//
// After a conflict or deadlock the function runs again in a new transaction, until it commits. So it must
// have no effect outside of the transaction, and must return the errors of calls that failed. It must not
// call Update or write without its transaction: it might conflict with itself, or wait for itself for ever.
func (db *DB) Update(fn func(*Tx) error) error { return db.UpdateContext(context.Background(), fn) }

// UpdateContext is Update until the context is done. Then ranges and cursors of the transaction end, the
// function does not run again, and nothing is written: the error is that of the context. A commit that has
// begun is not interrupted, nor is a wait for a lock.
func (db *DB) UpdateContext(ctx context.Context, fn func(*Tx) error) error {
	return db.run(func() error {
		for attempt := 1; ; attempt++ {
			err := db.attempt(ctx, attempt, fn)
			if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrDeadlock) {
				return err
			}
			if attempt < attemptsBeforeTurn {
				longest := min(50*time.Microsecond<<attempt, backOffMax)
				select {
				case <-time.After(rand.N(longest)):
				case <-ctx.Done():
				}
			}
		}
	})
}

func (db *DB) attempt(ctx context.Context, attempt int, fn func(*Tx) error) error {
	if attempt < attemptsBeforeTurn {
		return db.commitOne(ctx, TxDefault, fn)
	}
	select {
	case db.turn <- struct{}{}:
		defer func() { <-db.turn }()
		return db.commitOne(ctx, Exclusive, fn)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Batch runs a function in a transaction that writes without reading, and commits it. Writes of a batch have
// no conflicts. Reads in it return ErrInvalid.
func (db *DB) Batch(fn func(*Tx) error) error {
	return db.run(func() error { return db.commitOne(context.Background(), WriteOnly, fn) })
}

// beginContext begins a managed transaction that the end of a context ends.
func (db *DB) beginContext(ctx context.Context, kind TxKind) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := db.begin(kind, true)
	if err == nil {
		tx.state.ctx = ctx
	}
	return tx, err
}

func (db *DB) commitOne(ctx context.Context, kind TxKind, fn func(*Tx) error) error {
	tx, err := db.beginContext(ctx, kind)
	if err != nil {
		return err
	}
	// Also after a panic of fn.
	defer tx.state.finish(ErrTxDone)
	if err := fn(tx); err != nil {
		return err
	}
	_, err = tx.state.commit(DurabilityDefault)
	return err
}

// Begin begins a transaction, which must end by Commit or Rollback.
func (db *DB) Begin(kind TxKind) (*Tx, error) { return db.begin(kind, false) }

// Snapshot begins a transaction that reads the present state. Rollback ends it.
func (db *DB) Snapshot() (*Tx, error) { return db.begin(ReadOnly, false) }

// NewestCommit returns the number of the newest commit, for Feed.
func (db *DB) NewestCommit() (uint64, error) {
	if err := db.enter(); err != nil {
		return 0, err
	}
	defer db.leave()
	return capiNewest(db.c), nil
}

// do runs a call of the database.
func (db *DB) do(call func(cDB) error) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	return call(db.c)
}

// Sync makes all earlier commits durable.
func (db *DB) Sync() error { return db.do(capiSync) }

// Compact compacts the whole database into one sorted run without garbage. It takes long for large ones.
func (db *DB) Compact() error { return db.do(capiCompact) }

// Check reads all files and checks their checksums and structure. It fails with the first damage: ErrCorrupt.
func (db *DB) Check() error { return db.do(capiCheck) }

// Checkpoint copies the database as of now into a new directory, which is a database of its own. Tables are
// linked rather than copied where the file system can.
func (db *DB) Checkpoint(directory string) error {
	if err := checkText("the directory", directory); err != nil {
		return err
	}
	return db.do(func(c cDB) error { return capiCheckpoint(c, directory) })
}

// Stats returns the figures of the database: sizes, counts, times. The manual of `esker stats` explains them.
func (db *DB) Stats() (map[string]float64, error) {
	var figures map[string]float64
	err := db.do(func(c cDB) (err error) {
		figures, err = capiStats(c)
		return err
	})
	return figures, err
}
