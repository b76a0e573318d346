// Package status has the numbers of errors that the binding and the client share.
package status

import "strconv"

// Status says how a call failed. Its numbers are those of the C API and never change their meaning.
type Status int32

// The statuses of failures. See esker.h for their meaning.
const (
	NotFound           Status = 1
	NotSwapped         Status = 2
	BufferTooSmall     Status = 3
	Invalid            Status = 4
	IO                 Status = 5
	NoSpace            Status = 6
	Corrupt            Status = 7
	UnsupportedVersion Status = 8
	Encryption         Status = 9
	NoDatabase         Status = 10
	Locked             Status = 11
	ReadOnly           Status = 12
	Conflict           Status = 13
	Deadlock           Status = 14
	LockTimeout        Status = 15
	Poisoned           Status = 16
	TooLong            Status = 17
	KeyspaceNotFound   Status = 18
	KeyspaceExists     Status = 19
	Merge              Status = 20
	Gone               Status = 21
	NoFeed             Status = 22
	FeedAhead          Status = 23
	Exists             Status = 24
	Panicked           Status = 25
	Forked             Status = 26
	Closed             Status = 27
	Other              Status = 28
	// TxDone is a status of the Go packages only.
	TxDone Status = 1000
)

var texts = map[Status]string{
	NotFound:           "there is no such key",
	NotSwapped:         "the key has another value",
	BufferTooSmall:     "the buffer is too small",
	Invalid:            "an argument or option is not valid",
	IO:                 "the operating system refused an operation",
	NoSpace:            "no space left",
	Corrupt:            "bytes on disk are not what was written",
	UnsupportedVersion: "a file was written by a newer version",
	Encryption:         "encrypted files cannot be read",
	NoDatabase:         "the directory holds no database",
	Locked:             "the database is open elsewhere",
	ReadOnly:           "the database or transaction is read only",
	Conflict:           "another commit has changed what the transaction read or wrote",
	Deadlock:           "the transaction waits in a cycle of locks",
	LockTimeout:        "a lock was not free in time",
	Poisoned:           "a failure has stopped writes: open the database again",
	TooLong:            "the key or value is too long",
	KeyspaceNotFound:   "there is no such keyspace",
	KeyspaceExists:     "there is a keyspace of this name",
	Merge:              "the merge operator is missing, or refused an operand",
	Gone:               "the change feed does not have these commits",
	NoFeed:             "the database has no change feed",
	FeedAhead:          "the reader of the feed is ahead of the database",
	Exists:             "the path exists",
	Panicked:           "the engine panicked",
	Forked:             "the process was forked",
	Closed:             "the database is closed",
	Other:              "failed",
	TxDone:             "the transaction has ended",
}

// Error returns the meaning of the status.
func (s Status) Error() string {
	if text, ok := texts[s]; ok {
		return "esker: " + text
	}
	return "esker: status " + strconv.Itoa(int(s))
}
