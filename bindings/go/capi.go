package esker

// The only file that calls C. Each function takes and returns Go memory.

// #cgo noescape bridge_get
// #cgo nocallback bridge_get
// #cgo noescape bridge_take
// #cgo nocallback bridge_take
// #cgo noescape bridge_contains
// #cgo nocallback bridge_contains
// #cgo noescape bridge_ttl
// #cgo nocallback bridge_ttl
// #cgo noescape bridge_put
// #cgo nocallback bridge_put
// #cgo noescape bridge_put_ttl
// #cgo nocallback bridge_put_ttl
// #cgo noescape bridge_merge
// #cgo nocallback bridge_merge
// #cgo noescape bridge_delete
// #cgo nocallback bridge_delete
// #cgo noescape bridge_remove
// #cgo nocallback bridge_remove
// #cgo noescape bridge_swap
// #cgo nocallback bridge_swap
// #cgo noescape bridge_add
// #cgo nocallback bridge_add
// #cgo noescape bridge_walk
// #cgo nocallback bridge_walk
// #cgo noescape bridge_fill
// #cgo nocallback bridge_fill
// #cgo noescape bridge_move
// #cgo nocallback bridge_move
// #cgo noescape esker_begin
// #cgo nocallback esker_begin
// #cgo noescape esker_commit
// #cgo nocallback esker_commit
// #cgo nocallback esker_txn_free
// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"bytes"
	"encoding/binary"
	"math"
	"syscall"
	"unsafe"
)

// smallBytes is the size of values that a read copies through the stack, in one call.
const smallBytes = 512

type (
	cDB       = *C.esker_db
	cKeyspace = *C.esker_keyspace
	cTxn      = *C.esker_txn
	cIter     = *C.esker_iter
	cCursor   = *C.esker_cursor
	cFeed     = *C.esker_feed
)

const statusOK = Status(C.ESKER_OK)

// first returns a pointer to the bytes for C: nil if they are nil, else not nil.
func first(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func size(b []byte) C.size_t { return C.size_t(len(b)) }

// result makes the error of a call, and frees that of C.
func result(code C.int, err *C.esker_error) error {
	status := Status(code)
	if status == statusOK {
		return nil
	}
	if err == nil {
		return status
	}
	made := &Error{Code: status, Message: C.GoString(C.esker_error_text(err)), Offset: -1}
	if file := C.esker_error_file(err); file != nil {
		made.File = C.GoString(file)
	}
	var offset C.uint64_t
	if C.esker_error_offset(err, &offset) {
		made.Offset = int64(offset)
	}
	made.Errno = syscall.Errno(C.esker_error_errno(err))
	C.esker_error_free(err)
	return made
}

// Version returns the version of the engine.
func Version() string { return C.GoString(C.esker_version()) }

func capiOpen(path string, o *Options) (cDB, error) {
	var flags C.uint32_t
	for flag, is := range map[C.uint32_t]bool{
		C.BRIDGE_SNAPSHOT_ISOLATION: o.SnapshotIsolation,
		C.BRIDGE_MUST_EXIST:         o.MustExist,
		C.BRIDGE_MUST_NOT_EXIST:     o.MustNotExist,
		C.BRIDGE_READ_ONLY:          o.ReadOnly,
		C.BRIDGE_NO_COMPRESSION:     o.NoCompression,
		C.BRIDGE_BLOBS:              o.BlobsFrom != 0,
		C.BRIDGE_IN_MEMORY:          o.inMemory,
	} {
		if is {
			flags |= flag
		}
	}
	options := C.bridge_options{
		memory:          C.uint64_t(o.Memory),
		blobs_from:      C.uint64_t(max(o.BlobsFrom, 0)),
		lock_timeout_ms: milliseconds(o.LockTimeout),
		feed_bytes:      C.uint64_t(o.FeedBytes),
		feed_seconds:    (milliseconds(o.FeedAge) + 999) / 1000,
		durability:      C.uint32_t(o.Durability),
		flags:           flags,
	}
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	var keys *C.char
	if o.KeyFile != "" {
		keys = C.CString(o.KeyFile)
		defer C.free(unsafe.Pointer(keys))
	}
	var db cDB
	var r C.bridge_result
	code := C.bridge_open(cPath, keys, &options, &db, &r)
	return db, result(code, r.error)
}

func capiClose(db cDB) error {
	var err *C.esker_error
	return result(C.int(C.esker_close(db, &err)), err)
}

func capiSync(db cDB) error {
	var err *C.esker_error
	return result(C.int(C.esker_sync(db, &err)), err)
}

func capiCompact(db cDB) error {
	var err *C.esker_error
	return result(C.int(C.esker_compact(db, &err)), err)
}

func capiCheck(db cDB) error {
	var err *C.esker_error
	return result(C.int(C.esker_check(db, &err)), err)
}

func capiCheckpoint(db cDB, directory string) error {
	path := C.CString(directory)
	defer C.free(unsafe.Pointer(path))
	var err *C.esker_error
	return result(C.int(C.esker_checkpoint(db, path, &err)), err)
}

func capiNewest(db cDB) uint64 {
	var seqno C.uint64_t
	C.esker_newest_commit(db, &seqno)
	return uint64(seqno)
}

// taken copies the bytes that a call left, and frees them.
func taken(r *C.bridge_result) []byte {
	all := make([]byte, int(r.len))
	copy(all, unsafe.Slice((*byte)(r.data), int(r.len)))
	C.bridge_free(r.data)
	return all
}

func capiNames(db cDB) ([]string, error) {
	var r C.bridge_result
	if err := result(C.bridge_names(db, &r), r.error); err != nil {
		return nil, err
	}
	names := []string{}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(taken(&r), []byte{0}), []byte{0}) {
		names = append(names, string(name))
	}
	return names, nil
}

func capiStats(db cDB) (map[string]float64, error) {
	var r C.bridge_result
	if err := result(C.bridge_stats(db, &r), r.error); err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for all := taken(&r); len(all) > 8; {
		value := math.Float64frombits(binary.NativeEndian.Uint64(all))
		name, rest, _ := bytes.Cut(all[8:], []byte{0})
		figures[string(name)], all = value, rest
	}
	return figures, nil
}

func capiKeyspace(db cDB, name string, create bool) (cKeyspace, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var keyspace cKeyspace
	var err *C.esker_error
	if create {
		return keyspace, result(C.int(C.esker_keyspace_open(db, text, &keyspace, &err)), err)
	}
	return keyspace, result(C.int(C.esker_keyspace_find(db, text, &keyspace, &err)), err)
}

func capiDrop(db cDB, name string) error {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var err *C.esker_error
	return result(C.int(C.esker_keyspace_drop(db, text, &err)), err)
}

func capiRename(db cDB, from, to string) error {
	old, new := C.CString(from), C.CString(to)
	defer C.free(unsafe.Pointer(old))
	defer C.free(unsafe.Pointer(new))
	var err *C.esker_error
	return result(C.int(C.esker_keyspace_rename(db, old, new, &err)), err)
}

func capiKeyspaceFree(keyspace cKeyspace) { C.esker_keyspace_free(keyspace) }

func capiKeyspaceID(keyspace cKeyspace) uint32 { return uint32(C.esker_keyspace_id(keyspace)) }

func capiKeyspaceName(keyspace cKeyspace) (string, error) {
	var value C.esker_value
	var err *C.esker_error
	if failed := result(C.int(C.esker_keyspace_name(keyspace, &value, &err)), err); failed != nil {
		return "", failed
	}
	defer C.esker_value_free(&value)
	return string(unsafe.Slice((*byte)(value.data), int(value.len))), nil
}

func capiWith(keyspace cKeyspace, durability Durability) (cKeyspace, error) {
	var other cKeyspace
	var err *C.esker_error
	code := C.esker_keyspace_with_durability(keyspace, C.uint32_t(durability), &other, &err)
	return other, result(C.int(code), err)
}

func capiSetOperator(keyspace cKeyspace, operator string) error {
	text := C.CString(operator)
	defer C.free(unsafe.Pointer(text))
	var err *C.esker_error
	return result(C.int(C.esker_keyspace_set_merge_operator(keyspace, text, &err)), err)
}

func capiSetDefaultTTL(keyspace cKeyspace, ms C.uint64_t) error {
	var err *C.esker_error
	return result(C.int(C.esker_keyspace_set_default_ttl(keyspace, ms, &err)), err)
}

func capiSetBytesMax(keyspace cKeyspace, size uint64) error {
	var err *C.esker_error
	return result(C.int(C.esker_keyspace_set_bytes_max(keyspace, C.uint64_t(size), &err)), err)
}

// found copies what a read left: from the buffer, or from the value that did not fit into it.
func found(r *C.bridge_result, buffer []byte) []byte {
	value := make([]byte, int(r.len))
	if r.value.owner != nil {
		C.bridge_take(r, first(value))
	} else {
		copy(value, buffer)
	}
	return value
}

func capiGet(keyspace cKeyspace, txn cTxn, key []byte) ([]byte, error) {
	var buffer [smallBytes]byte
	var r C.bridge_result
	code := C.bridge_get(keyspace, txn, first(key), size(key), first(buffer[:]), smallBytes, &r)
	if code != C.ESKER_OK {
		return nil, result(code, r.error)
	}
	return found(&r, buffer[:]), nil
}

func capiRemove(keyspace cKeyspace, txn cTxn, key []byte) ([]byte, error) {
	var buffer [smallBytes]byte
	var r C.bridge_result
	code := C.bridge_remove(keyspace, txn, first(key), size(key), first(buffer[:]), smallBytes, &r)
	if code != C.ESKER_OK {
		return nil, result(code, r.error)
	}
	return found(&r, buffer[:]), nil
}

func capiGetMany(keyspace cKeyspace, txn cTxn, keys [][]byte) ([][]byte, error) {
	if len(keys) == 0 {
		return [][]byte{}, nil
	}
	lens := make([]C.size_t, len(keys))
	for at, key := range keys {
		lens[at] = size(key)
	}
	all := bytes.Join(keys, nil)
	var r C.bridge_result
	code := C.bridge_get_many(keyspace, txn, first(all), &lens[0], C.size_t(len(keys)), &r)
	if err := result(code, r.error); err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	rest := taken(&r)
	for at := range values {
		length := binary.NativeEndian.Uint64(rest)
		if rest = rest[8:]; length != math.MaxUint64 {
			values[at], rest = rest[:length:length], rest[length:]
		}
	}
	return values, nil
}

func capiContains(keyspace cKeyspace, txn cTxn, key []byte) error {
	var r C.bridge_result
	return result(C.bridge_contains(keyspace, txn, first(key), size(key), &r), r.error)
}

func capiTTL(keyspace cKeyspace, txn cTxn, key []byte) (uint64, error) {
	var r C.bridge_result
	code := C.bridge_ttl(keyspace, txn, first(key), size(key), &r)
	return uint64(r.number), result(code, r.error)
}

func capiLen(keyspace cKeyspace, txn cTxn) (uint64, error) {
	var count C.uint64_t
	var err *C.esker_error
	code := C.esker_len(keyspace, txn, &count, &err)
	return uint64(count), result(C.int(code), err)
}

func capiSize(keyspace cKeyspace, start, end []byte) (uint64, error) {
	var r C.bridge_result
	code := C.bridge_size(keyspace, first(start), size(start), first(end), size(end), &r)
	return uint64(r.number), result(code, r.error)
}

func capiPut(keyspace cKeyspace, txn cTxn, key, value []byte) error {
	var r C.bridge_result
	code := C.bridge_put(keyspace, txn, first(key), size(key), first(value), size(value), &r)
	return result(code, r.error)
}

func capiPutTTL(keyspace cKeyspace, txn cTxn, key, value []byte, ms C.uint64_t) error {
	var r C.bridge_result
	code := C.bridge_put_ttl(keyspace, txn, first(key), size(key), first(value), size(value), ms, &r)
	return result(code, r.error)
}

func capiMerge(keyspace cKeyspace, txn cTxn, key, operand []byte) error {
	var r C.bridge_result
	code := C.bridge_merge(keyspace, txn, first(key), size(key), first(operand), size(operand), &r)
	return result(code, r.error)
}

func capiDelete(keyspace cKeyspace, txn cTxn, key []byte) error {
	var r C.bridge_result
	return result(C.bridge_delete(keyspace, txn, first(key), size(key), &r), r.error)
}

func capiDeleteRange(keyspace cKeyspace, txn cTxn, start, end []byte) error {
	var r C.bridge_result
	code := C.bridge_delete_range(keyspace, txn, first(start), size(start), first(end), size(end), &r)
	return result(code, r.error)
}

func capiDeletePrefix(keyspace cKeyspace, txn cTxn, prefix []byte) error {
	var r C.bridge_result
	return result(C.bridge_delete_prefix(keyspace, txn, first(prefix), size(prefix), &r), r.error)
}

func capiSwap(keyspace cKeyspace, txn cTxn, key, expected, value []byte) error {
	var r C.bridge_result
	code := C.bridge_swap(keyspace, txn, first(key), size(key), first(expected), size(expected),
		first(value), size(value), &r)
	return result(code, r.error)
}

func capiAdd(keyspace cKeyspace, txn cTxn, key []byte, by int64) (int64, error) {
	var r C.bridge_result
	code := C.bridge_add(keyspace, txn, first(key), size(key), C.int64_t(by), &r)
	return int64(r.number), result(code, r.error)
}

func capiExpire(keyspace cKeyspace, txn cTxn, key []byte, ms C.uint64_t) error {
	var r C.bridge_result
	return result(C.bridge_expire(keyspace, txn, first(key), size(key), ms, &r), r.error)
}

func capiLock(keyspace cKeyspace, txn cTxn, key []byte, shared bool) error {
	var r C.bridge_result
	var mode C.int
	if shared {
		mode = 1
	}
	return result(C.bridge_lock(keyspace, txn, first(key), size(key), mode, &r), r.error)
}
