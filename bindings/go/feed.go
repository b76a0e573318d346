package esker

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"time"
)

// How long a feed waits in C before it looks whether its context or database has ended.
const feedWait = 50 * time.Millisecond

// ChangeKind says what a change did.
type ChangeKind uint32

// Programs have to expect new kinds.
const (
	// ChangePut: Key was set to Value.
	ChangePut ChangeKind = 1
	// ChangeMerge: Value was merged into Key, as an operand.
	ChangeMerge ChangeKind = 2
	// ChangeDelete: Key was removed, or did not exist.
	ChangeDelete ChangeKind = 3
	// ChangeExpire: Key was removed because it has expired.
	ChangeExpire ChangeKind = 4
	// ChangeDeleteRange: the keys from Key on, below Value, were removed. nil as Value: to the end.
	ChangeDeleteRange ChangeKind = 5
	// ChangeNamed: the keyspace got the name Value: it was created or renamed.
	ChangeNamed ChangeKind = 6
	// ChangeUnnamed: the name Value is free: its keyspace was dropped or renamed.
	ChangeUnnamed ChangeKind = 7
	// ChangeOther: another change of the catalog.
	ChangeOther ChangeKind = 8
)

// Change is a change made by a commit.
type Change struct {
	Kind ChangeKind
	// KeyspaceID is the number of the keyspace: see Keyspace.ID.
	KeyspaceID uint32
	Key, Value []byte
	// ExpiresAt is when a value that was put expires. Zero: never.
	ExpiresAt time.Time
	// MergedAt is when an operand was merged. If the key was missing then, the operand began a value.
	MergedAt time.Time
	// Lifetime is that of a value which begins with an operand, from MergedAt on. Zero: it does not expire.
	Lifetime time.Duration
}

// Commit is a commit of the change feed.
type Commit struct {
	// Seqno is the number of the commit. Store it, to resume after it.
	Seqno   uint64
	Changes []Change
}

type feedState struct{ c cFeed }

func (s *feedState) release() { capiFeedFree(s.c) }

// Feed returns the durable commits after the commit with a number; 0 is before the first one. It waits for
// further commits until the context ends.
//
// An error is the last pair: that of the context, ErrNoFeed, ErrGone if the commits are no longer kept,
// ErrFeedAhead, ErrClosed.
func (db *DB) Feed(ctx context.Context, after uint64) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		state := &feedState{}
		err := db.do(func(c cDB) (err error) {
			state.c, err = capiFeed(c, after)
			if err == nil {
				db.add(state)
			}
			return err
		})
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() {
			if db.remove(state) {
				state.release()
			}
		}()
		for {
			commit, err := db.nextCommit(ctx, state)
			if !yield(commit, err) || err != nil {
				return
			}
		}
	}
}

func (db *DB) nextCommit(ctx context.Context, state *feedState) (*Commit, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var commit *Commit
		err := db.do(func(cDB) error {
			seqno, count, changes, err := capiFeedNext(state.c, feedWait)
			if err == nil {
				commit = &Commit{Seqno: seqno, Changes: parseChanges(count, changes)}
			}
			return err
		})
		if !errors.Is(err, ErrNotFound) {
			return commit, err
		}
	}
}

// parseChanges reads what bridge_feed writes.
func parseChanges(count int, rest []byte) []Change {
	changes := make([]Change, count)
	for at := range changes {
		changes[at].Kind = ChangeKind(binary.NativeEndian.Uint32(rest))
		changes[at].KeyspaceID = binary.NativeEndian.Uint32(rest[4:])
		changes[at].ExpiresAt = feedTime(binary.NativeEndian.Uint64(rest[8:]))
		changes[at].MergedAt = feedTime(binary.NativeEndian.Uint64(rest[16:]))
		changes[at].Lifetime = lifetime(binary.NativeEndian.Uint64(rest[24:]))
		keyLen, valueLen := binary.NativeEndian.Uint64(rest[32:]), binary.NativeEndian.Uint64(rest[40:])
		rest = rest[48:]
		changes[at].Key, rest = rest[:keyLen:keyLen], rest[keyLen:]
		if valueLen != math.MaxUint64 {
			changes[at].Value, rest = rest[:valueLen:valueLen], rest[valueLen:]
		}
	}
	return changes
}

// feedTime is the time of milliseconds since 1970. 0 is no time.
func feedTime(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}
