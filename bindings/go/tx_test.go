package esker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"esker.dev/esker"
)

func TestTransactions(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	failed := errors.New("no")
	equal(t, db.Update(func(tx *esker.Tx) error {
		must(t, value(tx.In(ks))(t).Put(b("a"), b("1")))
		wants(t, tx.Rollback(), esker.ErrInvalid)
		return failed
	}), failed)
	func() {
		defer func() { equal(t, fmt.Sprint(recover()), "oh") }()
		_ = db.Update(func(tx *esker.Tx) error {
			must(t, value(tx.In(ks))(t).Put(b("a"), b("1")))
			panic("oh")
		})
	}()
	equal(t, value(ks.Len())(t), 0)

	tx := value(db.Begin(esker.Serializable))(t)
	in := value(tx.In(ks))(t)
	must(t, in.Put(b("a"), b("1")))
	first := value(tx.Savepoint())(t)
	must(t, in.Put(b("b"), b("1")))
	second := value(tx.Savepoint())(t)
	must(t, in.DeleteRange(nil, nil))
	must(t, tx.RollbackTo(second))
	equal(t, shown(in.All()), "a=1 b=1")
	must(t, tx.RollbackTo(first))
	value(tx.Savepoint())(t)
	wants(t, tx.RollbackTo(second), esker.ErrInvalid)
	equal(t, value(in.CompareAndSwap(b("a"), b("1"), b("2")))(t), true)
	committed := false
	tx.OnCommit(func() { committed = true })
	cursor := in.Cursor()
	must(t, tx.Commit())
	equal(t, committed, true)
	wants(t, tx.Commit(), esker.ErrTxDone)
	wants(t, in.Put(b("a"), nil), esker.ErrTxDone)
	if key, _ := cursor.First(); key != nil {
		t.Fatal(key)
	}
	wants(t, cursor.Err(), esker.ErrTxDone)
	equal(t, shown(in.All()), "")
	wants(t, in.Err(), esker.ErrTxDone)
	equal(t, shown(ks.All()), "a=2")

	snapshot := value(db.Snapshot())(t)
	must(t, ks.Delete(b("a")))
	equal(t, shown(value(snapshot.In(ks))(t).All()), "a=2")
	must(t, snapshot.Rollback())

	one, two := value(db.Begin(esker.TxDefault))(t), value(db.Begin(esker.TxDefault))(t)
	for _, tx := range []*esker.Tx{one, two} {
		_, err := value(tx.In(ks))(t).Add(b("n"), 1)
		must(t, err)
	}
	must(t, one.Commit())
	wants(t, two.Commit(), esker.ErrConflict)
	wants(t, two.Commit(), esker.ErrTxDone)
	exclusive := value(db.Begin(esker.Exclusive))(t)
	_, err := exclusive.Keyspace("new")
	wants(t, err, esker.ErrKeyspaceNotFound)
	must(t, exclusive.Rollback())
	wants(t, db.Batch(func(tx *esker.Tx) error {
		_, err := value(tx.In(ks))(t).Get(b("a"))
		return err
	}), esker.ErrInvalid)
}

// Many goroutines add to few keys: each Update runs again until it commits.
func TestConflicts(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				if err := db.Update(func(tx *esker.Tx) error {
					in, err := tx.Keyspace("a")
					if err != nil {
						return err
					}
					old, err := in.Get(b("n"))
					if err != nil && !errors.Is(err, esker.ErrNotFound) {
						return err
					}
					runtime.Gosched()
					next := binary.LittleEndian.AppendUint64(nil, 1)
					if old != nil {
						binary.LittleEndian.PutUint64(next, binary.LittleEndian.Uint64(old)+1)
					}
					return in.Put(b("n"), next)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	equal(t, value(ks.Add(b("n"), 0))(t), 800)
}

// Everything is used while the database closes: calls fail with ErrClosed or ErrTxDone, and nothing else.
func TestCloseUnderUse(t *testing.T) {
	for range 20 {
		db := value(esker.OpenInMemory(&esker.Options{FeedBytes: 1 << 20, Memory: 16 << 20}))(t)
		ks := value(db.Keyspace("a"))(t)
		var all sync.WaitGroup
		use := func(call func() error) {
			all.Go(func() {
				for {
					err := call()
					if errors.Is(err, esker.ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, esker.ErrConflict) {
						t.Error(err)
						return
					}
				}
			})
		}
		use(func() error { return ks.Put(b("a"), b("1")) })
		use(func() error {
			for range ks.All() {
				runtime.Gosched()
			}
			return ks.Err()
		})
		use(func() error {
			cursor := ks.Cursor()
			cursor.First()
			return cursor.Err()
		})
		use(func() error {
			tx, err := db.Begin(esker.Exclusive)
			if err != nil {
				return err
			}
			in, err := tx.In(ks)
			if err == nil {
				err = in.Put(b("b"), b("1"))
			}
			return errors.Join(err, tx.Commit())
		})
		use(func() error {
			return db.Update(func(tx *esker.Tx) error {
				in, err := tx.Keyspace("a")
				if err != nil {
					return err
				}
				_, err = in.Add(b("n"), 1)
				return err
			})
		})
		use(func() error {
			for _, err := range db.Feed(context.Background(), 0) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		_, err := db.Snapshot() // forgotten
		must(t, err)
		time.Sleep(5 * time.Millisecond)
		must(t, db.Close())
		all.Wait()
		must(t, db.Close())
	}
}

func TestForgottenHandlesAreFreed(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	must(t, ks.Put(b("a"), b("1")))
	for i := range 2000 {
		tx := value(db.Begin(esker.Exclusive))(t)
		must(t, tx.Rollback())
		tx = value(db.Snapshot())(t)
		in := value(tx.In(ks))(t)
		in.Cursor().First()
		other := value(ks.With(esker.NoWait))(t)
		other.Cursor().First()
		if i%200 == 0 {
			runtime.GC()
		}
	}
	before := value(db.Begin(esker.Exclusive))(t)
	must(t, value(before.In(ks))(t).Put(b("b"), b("1")))
	before, in := nil, value(db.Snapshot())(t)
	// The collected transaction gives the exclusive turn back.
	ended := make(chan error, 1)
	go func() { ended <- ks.Put(b("c"), b("1")) }()
	for {
		runtime.GC()
		select {
		case err := <-ended:
			must(t, err)
			equal(t, shown(ks.All(esker.KeysOnly)), "a= c=")
			must(t, in.Rollback())
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A closed database is garbage, with its keyspaces.
func TestClosedDatabasesAreCollected(t *testing.T) {
	closed := func() weak.Pointer[esker.DB] {
		db := value(esker.OpenInMemory(nil))(t)
		ks := value(db.Keyspace("a"))(t)
		must(t, ks.Put(b("a"), b("1")))
		must(t, db.View(func(tx *esker.Tx) error { return value(tx.In(ks))(t).Cursor().Err() }))
		must(t, db.Close())
		return weak.Make(db)
	}()
	for end := time.Now().Add(10 * time.Second); closed.Value() != nil; {
		if time.Now().After(end) {
			t.Fatal("the database is still in memory")
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

func TestFeedAndCheckpoint(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	must(t, ks.SetMergeOperator("append"))
	after := value(db.NewestCommit())(t)
	must(t, db.Update(func(tx *esker.Tx) error {
		in, err := tx.Keyspace("a")
		return errors.Join(err, in.PutTTL(b("a"), b("1"), time.Hour), in.Merge(b("b"), b("2")), in.Delete(b("c")))
	}))
	must(t, ks.DeleteRange(b("x"), nil))
	before := time.Now().Add(-time.Millisecond)
	must(t, ks.SetDefaultTTL(time.Hour))
	must(t, ks.Merge(b("d"), b("3")))
	must(t, db.Sync())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var got []string
	for commit, err := range db.Feed(ctx, after) {
		if err != nil {
			wants(t, err, context.DeadlineExceeded)
			break
		}
		for _, change := range commit.Changes {
			if change.Kind == esker.ChangeOther {
				continue // the options of the keyspace
			}
			equal(t, change.KeyspaceID, value(ks.ID())(t))
			equal(t, change.ExpiresAt.IsZero(), change.Kind != esker.ChangePut)
			equal(t, change.MergedAt.IsZero(), change.Kind != esker.ChangeMerge)
			if string(change.Key) == "d" {
				equal(t, change.Lifetime, time.Hour)
				equal(t, change.MergedAt.Before(before) || change.MergedAt.After(time.Now()), false)
			} else {
				equal(t, change.Lifetime, 0)
			}
			got = append(got, fmt.Sprintf("%d %s=%s", change.Kind, change.Key, change.Value))
		}
	}
	equal(t, fmt.Sprint(got), "[1 a=1 2 b=2 3 c= 5 x= 2 d=3]")
	for _, err := range db.Feed(t.Context(), 1<<40) {
		wants(t, err, esker.ErrFeedAhead)
	}

	dir := t.TempDir()
	must(t, db.Checkpoint(dir+"/copy"))
	wants(t, db.Checkpoint(dir+"/copy"), esker.ErrExists)
	must(t, ks.Delete(b("a")))
	copied := value(esker.Open(dir+"/copy", nil))(t)
	equal(t, shown(value(copied.Keyspace("a"))(t).All()), "a=1 b=2 d=3")
	must(t, copied.Check())
	must(t, copied.Close())
}

// Goroutines share threads. A write of one must not pass the exclusive transaction of another.
func TestExclusiveKeepsOthersOut(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	must(t, ks.Put(b("n"), make([]byte, 8)))
	var stop atomic.Bool
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			for !stop.Load() {
				if _, err := ks.Add(b("n"), 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 50 {
		tx := value(db.Begin(esker.Exclusive))(t)
		in := value(tx.In(ks))(t)
		before := value(in.Get(b("n")))(t)
		for range 5 {
			time.Sleep(200 * time.Microsecond)
			runtime.Gosched()
		}
		equal(t, string(value(ks.Get(b("n")))(t)), string(before))
		must(t, in.Put(b("n"), before))
		must(t, tx.Commit())
	}
	stop.Store(true)
	others.Wait()
}

// A commit ends cursors and ranges. Other goroutines meet an ended transaction, not memory that was freed.
func TestCommitWhileOthersUseIt(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	for round := range 40 {
		tx := value(db.Begin(esker.TxKind(round % 4)))(t)
		in := value(tx.In(ks))(t)
		cursor := in.Cursor()
		cursor.First()
		var users sync.WaitGroup
		for user := range 4 {
			users.Go(func() {
				for n := range 100 {
					err := in.Put(fmt.Appendf(nil, "%d %d", user, n), b("v"))
					if err != nil && !errors.Is(err, esker.ErrTxDone) && !errors.Is(err, esker.ErrReadOnly) {
						t.Error(err)
					}
					cursor.Last()
					for range in.All() {
						break
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		if err := tx.Commit(); err != nil {
			wants(t, err, esker.ErrConflict)
		}
		if key, _ := cursor.First(); key != nil {
			t.Fatal("the cursor goes on after the commit")
		}
		users.Wait()
	}
}

// A commit that fails leaves the transaction, but no cursor or range.
func TestCursorsEndWithACommitThatFails(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	for n := range 2000 {
		must(t, ks.Put(fmt.Appendf(nil, "%04d", n), make([]byte, 50)))
	}
	tx := value(db.Begin(esker.TxDefault))(t)
	in := value(tx.In(ks))(t)
	cursor := in.Cursor()
	if key, _ := cursor.First(); key == nil {
		t.Fatal(cursor.Err())
	}
	seen := 0
	for range in.All() {
		if seen++; seen == 1 {
			_, err := tx.CommitWith(esker.Durability(99))
			wants(t, err, esker.ErrInvalid)
		}
	}
	wants(t, in.Err(), esker.ErrTxDone)
	if key, _ := cursor.Next(); key != nil || !errors.Is(cursor.Err(), esker.ErrTxDone) {
		t.Fatal(cursor.Err())
	}
	must(t, tx.Rollback())
}

func TestSwapKeepsTheLifetime(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	for _, key := range []string{"outside", "inside"} {
		must(t, ks.PutTTL(b(key), b("1"), time.Hour))
	}
	equal(t, value(ks.CompareAndSwap(b("outside"), b("1"), b("2")))(t), true)
	must(t, db.Update(func(tx *esker.Tx) error {
		swapped, err := value(tx.In(ks))(t).CompareAndSwap(b("inside"), b("1"), b("2"))
		equal(t, swapped, true)
		return err
	}))
	for _, key := range []string{"outside", "inside"} {
		equal(t, string(value(ks.Get(b(key)))(t)), "2")
		if left := value(ks.TTL(b(key)))(t); left > time.Hour || left < 59*time.Minute {
			t.Fatal(key, left)
		}
	}
}

func TestSwapInTransactionKeepsTheMomentOfExpiry(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	must(t, ks.PutTTL(b("k"), b("0"), time.Hour))
	must(t, db.Update(func(tx *esker.Tx) error {
		in := value(tx.In(ks))(t)
		// Each of them takes time, which must not add up.
		for i := range 20_000 {
			equal(t, value(in.CompareAndSwap(b("k"), fmt.Append(nil, i), fmt.Append(nil, i+1)))(t), true)
		}
		return nil
	}))
	must(t, db.Sync())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var ends []time.Time
	for commit, err := range db.Feed(ctx, 0) {
		must(t, err)
		for _, change := range commit.Changes {
			if string(change.Key) == "k" {
				ends = append(ends, change.ExpiresAt)
			}
		}
		if len(ends) > 1 {
			break
		}
	}
	if first, last := ends[0], ends[len(ends)-1]; !first.Equal(last) {
		t.Fatalf("%v became %v in %d swaps", first, last, len(ends)-1)
	}
}
