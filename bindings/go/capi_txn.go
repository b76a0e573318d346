package esker

// The calls of transactions, walks, cursors and feeds.

// #include "bridge.h"
import "C"

import (
	"time"
)

const (
	moveFirst = C.BRIDGE_FIRST
	moveLast  = C.BRIDGE_LAST
	moveNext  = C.BRIDGE_NEXT
	movePrev  = C.BRIDGE_PREV
	moveSeek  = C.BRIDGE_SEEK
	moveUnder = C.BRIDGE_SEEK_BEFORE
	moveStay  = C.BRIDGE_STAY
)

// milliseconds rounds up, so that a short time is not none.
func milliseconds(d time.Duration) C.uint64_t {
	if d <= 0 {
		return 0
	}
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return C.uint64_t(ms)
}

func capiBegin(db cDB, kind TxKind) (cTxn, error) {
	var txn cTxn
	var err *C.esker_error
	if kind == Exclusive {
		// Goroutines share threads: the engine would let writes of others in this thread pass.
		kind = C.ESKER_TXN_EXCLUSIVE_OF_TASK
	}
	code := C.esker_begin(db, C.uint32_t(kind), &txn, &err)
	return txn, result(C.int(code), err)
}

func capiCommit(txn cTxn, durability Durability) (uint64, error) {
	var seqno C.uint64_t
	var err *C.esker_error
	code := C.esker_commit(txn, C.uint32_t(durability), &seqno, &err)
	return uint64(seqno), result(C.int(code), err)
}

func capiTxnFree(txn cTxn) { C.esker_txn_free(txn) }

func capiTxnSeqno(txn cTxn) uint64 { return uint64(C.esker_txn_seqno(txn)) }

func capiSavepoint(txn cTxn) (uint64, error) {
	var savepoint C.uint64_t
	var err *C.esker_error
	code := C.esker_savepoint(txn, &savepoint, &err)
	return uint64(savepoint), result(C.int(code), err)
}

func capiRollbackTo(txn cTxn, savepoint uint64) error {
	var err *C.esker_error
	return result(C.int(C.esker_rollback_to(txn, C.uint64_t(savepoint), &err)), err)
}

// filled says what a fill left in a buffer.
type filled struct {
	count int
	bytes int
	done  bool
}

// capiWalk begins a walk and fills a buffer. The walk is nil if it has ended. bufferTooSmall: bytes is what
// the next entry needs.
func capiWalk(keyspace cKeyspace, txn cTxn, w walk, buffer []byte) (cIter, filled, error) {
	var iter cIter
	var r C.bridge_result
	options := C.bridge_walk_options{limit: C.uint64_t(w.limit), flags: C.uint32_t(w.flags)}
	if w.isPrefix {
		options.is_prefix = 1
	}
	code := C.bridge_walk(keyspace, txn, first(w.start), size(w.start), first(w.end), size(w.end),
		&options, first(buffer), size(buffer), &iter, &r)
	return iter, filled{int(r.count), int(r.len), r.done != 0}, result(code, r.error)
}

func capiFill(iter cIter, buffer []byte) (filled, error) {
	var r C.bridge_result
	code := C.bridge_fill(iter, first(buffer), size(buffer), &r)
	return filled{int(r.count), int(r.len), r.done != 0}, result(code, r.error)
}

func capiIterFree(iter cIter) { C.esker_iter_free(iter) }

func capiCursor(keyspace cKeyspace, txn cTxn) (cCursor, error) {
	var cursor cCursor
	var err *C.esker_error
	code := C.esker_cursor_new(keyspace, txn, &cursor, &err)
	return cursor, result(C.int(code), err)
}

func capiCursorFree(cursor cCursor) { C.esker_cursor_free(cursor) }

// capiMove moves a cursor and returns copies of the key and the value there.
func capiMove(cursor cCursor, move int, to []byte) ([]byte, []byte, error) {
	var small [smallBytes]byte
	var r C.bridge_result
	code := C.bridge_move(cursor, C.int(move), first(to), size(to), first(small[:]), smallBytes, &r)
	switch code {
	case C.ESKER_OK:
		entry := make([]byte, int(r.len))
		copy(entry, small[:])
		return entry[:r.count:r.count], entry[r.count:], nil
	case C.ESKER_BUFFER_TOO_SMALL:
		entry := make([]byte, int(r.len))
		code = C.bridge_move(cursor, moveStay, nil, 0, first(entry), size(entry), &r)
		if code == C.ESKER_OK {
			return entry[:r.count:r.count], entry[r.count:], nil
		}
	}
	return nil, nil, result(code, r.error)
}

func capiFeed(db cDB, after uint64) (cFeed, error) {
	var feed cFeed
	var err *C.esker_error
	code := C.esker_feed_after(db, C.uint64_t(after), &feed, &err)
	return feed, result(C.int(code), err)
}

func capiFeedFree(feed cFeed) { C.esker_feed_free(feed) }

// capiFeedNext returns the number of the next commit and its changes, as bridge_feed leaves them.
func capiFeedNext(feed cFeed, wait time.Duration) (uint64, int, []byte, error) {
	var r C.bridge_result
	code := C.bridge_feed(feed, milliseconds(wait), &r)
	if err := result(code, r.error); err != nil {
		return 0, 0, nil, err
	}
	return uint64(r.number), int(r.count), taken(&r), nil
}
