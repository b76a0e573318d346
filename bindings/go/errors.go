package esker

import (
	"fmt"
	"strings"
	"syscall"

	"esker.dev/esker/internal/status"
)

// Status says how a call failed. Each Err constant is one. errors.Is compares an error with them.
type Status = status.Status

// What errors.Is finds in the errors of this package.
const (
	// ErrNotFound: there is no such key.
	ErrNotFound = status.NotFound
	// ErrInvalid: an argument or option is not valid, a mistake of the caller.
	ErrInvalid = status.Invalid
	// ErrIO: the operating system refused an operation. errors.Is finds its syscall.Errno, too.
	ErrIO = status.IO
	// ErrNoSpace: no space left. Acknowledged data is safe, and reads continue.
	ErrNoSpace = status.NoSpace
	// ErrCorrupt: bytes on disk are not what was written. Error.File and Error.Offset say where.
	ErrCorrupt = status.Corrupt
	// ErrUnsupportedVersion: a file was written by a newer version of Esker.
	ErrUnsupportedVersion = status.UnsupportedVersion
	// ErrEncryption: encrypted files cannot be read, or files that should be encrypted are not.
	ErrEncryption = status.Encryption
	// ErrNoDatabase: the directory holds no database, or an unfinished one.
	ErrNoDatabase = status.NoDatabase
	// ErrLocked: another process, or another DB of this one, has the database open.
	ErrLocked = status.Locked
	// ErrReadOnly: the database was opened to read it, or the transaction only reads.
	ErrReadOnly = status.ReadOnly
	// ErrConflict: another commit has changed what the transaction read or wrote. Run it again.
	ErrConflict = status.Conflict
	// ErrDeadlock: the transaction waits in a cycle of locks. Roll it back, and run it again.
	ErrDeadlock = status.Deadlock
	// ErrLockTimeout: a lock was not free in time.
	ErrLockTimeout = status.LockTimeout
	// ErrPoisoned: a failure has stopped writes. Reads still work. Open the database again.
	ErrPoisoned = status.Poisoned
	// ErrTooLong: a key has more than KeyBytesMax bytes, or a value more than 4 GiB - 1.
	ErrTooLong = status.TooLong
	// ErrKeyspaceNotFound: there is no keyspace of this name, or it was dropped.
	ErrKeyspaceNotFound = status.KeyspaceNotFound
	// ErrKeyspaceExists: there is a keyspace of this name.
	ErrKeyspaceExists = status.KeyspaceExists
	// ErrMerge: the merge operator is missing, or refused an operand or a value.
	ErrMerge = status.Merge
	// ErrGone: the change feed does not keep these commits any longer.
	ErrGone = status.Gone
	// ErrNoFeed: the database was opened without Options.FeedBytes.
	ErrNoFeed = status.NoFeed
	// ErrFeedAhead: the reader of the feed knows of commits that this database does not have.
	ErrFeedAhead = status.FeedAhead
	// ErrExists: something exists where a call would create a file or directory.
	ErrExists = status.Exists
	// ErrPanicked: a bug of the engine.
	ErrPanicked = status.Panicked
	// ErrForked: the process was forked from the one that opened the database.
	ErrForked = status.Forked
	// ErrClosed: the database was closed.
	ErrClosed = status.Closed
	// ErrTxDone: the transaction was committed or rolled back, or the cursor was closed.
	ErrTxDone = status.TxDone
)

// KeyBytesMax is the greatest length of a key in bytes.
const KeyBytesMax = 65535

// Error is an error of the engine.
type Error struct {
	// Code says how the call failed. errors.Is(err, ErrCorrupt) compares it.
	Code Status
	// Message says what failed and what to do about it.
	Message string
	// File is the file or directory that the error is about, or empty.
	File string
	// Offset is the position of damage in File in bytes, or -1.
	Offset int64
	// Errno is the error of the operating system, or 0.
	Errno syscall.Errno
}

// Error returns the message.
func (e *Error) Error() string { return "esker: " + e.Message }

// Unwrap returns the status and, if there is one, the error of the operating system.
func (e *Error) Unwrap() []error {
	if e.Errno != 0 {
		return []error{e.Code, e.Errno}
	}
	return []error{e.Code}
}

func failure(code Status, format string, arguments ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, arguments...), Offset: -1}
}

// checkText refuses texts that C would cut short.
func checkText(what, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return failure(ErrInvalid, "%s contains a zero byte: %q", what, text)
	}
	return nil
}

// Statuses that callers do not see.
const (
	notSwapped     = status.NotSwapped
	bufferTooSmall = status.BufferTooSmall
)
