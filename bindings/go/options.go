package esker

import "time"

// Durability says what a commit waits for.
type Durability uint32

const (
	// DurabilityDefault is that of the database, for a commit that names none.
	DurabilityDefault Durability = 0
	// Sync waits until the commit is on the disk. The default of a database.
	Sync Durability = 1
	// Buffered waits until the operating system has the commit. A power loss can take the last 100 ms.
	Buffered Durability = 2
	// NoWait does not wait. A kill of the process can take the last commits.
	NoWait Durability = 3
)

// Options says how a database is opened. The zero value suits most programs.
type Options struct {
	// Memory is the budget in bytes for cached blocks, indexes, filters and memtables. 0: 1 GiB.
	Memory uint64
	// Durability is that of commits that name none. 0: Sync.
	Durability Durability
	// SnapshotIsolation is the isolation of Update: it permits write skew. Default: serializable.
	SnapshotIsolation bool
	// MustExist refuses to create a missing database.
	MustExist bool
	// MustNotExist refuses a database that exists.
	MustNotExist bool
	// ReadOnly opens a database to read it, beside other readers.
	ReadOnly bool
	// NoCompression stores tables as they are.
	NoCompression bool
	// BlobsFrom is the size in bytes of values that are stored in blob files. 0: chosen by the engine; below
	// 0: none are.
	BlobsFrom int64
	// LockTimeout is how long Open waits for a database that another process has open.
	LockTimeout time.Duration
	// FeedBytes keeps a change feed of at most this size. 0: no feed.
	FeedBytes uint64
	// FeedAge is how long the feed keeps a commit. 0: a day.
	FeedAge time.Duration
	// KeyFile has the master keys of an encrypted database.
	KeyFile string

	inMemory bool
}

func (o *Options) checked(path string) (*Options, error) {
	given := Options{}
	if o != nil {
		given = *o
	}
	if given.FeedAge == 0 {
		given.FeedAge = 24 * time.Hour
	}
	if given.Durability > NoWait {
		return nil, failure(ErrInvalid, "%d is no durability", given.Durability)
	}
	if given.LockTimeout < 0 || given.FeedAge < 0 {
		return nil, failure(ErrInvalid, "a time of the options is negative")
	}
	if err := checkText("the path of the key file", given.KeyFile); err != nil {
		return nil, err
	}
	return &given, checkText("the path", path)
}
