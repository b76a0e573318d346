package lab

// What rows say of the page cache that they begin with, and the database opened anew on an empty one.

import (
	"errors"
	"os"
	"syscall"
)

const (
	notCold  = "the page cache could not be dropped (/proc/sys/vm/drop_caches takes a privilege)"
	notEmpty = "began with whatever the page cache held: it could not be dropped"
)

// dropPageCache says whether it could. Tests replace it.
var dropPageCache = func() bool {
	syscall.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0) == nil
}

// begins is what a row says of the page cache that it begins with.
func begins(isCold bool) string {
	if isCold {
		return ""
	}
	return notEmpty
}

// anew drops the page cache, opens the database, and runs rows, which say note of the page cache.
func anew(engine Engine, options OpenOptions, r *Recorder, rows func(store Store, note string) error) error {
	note := begins(dropPageCache())
	store, err := engine.Open(r.dir, options)
	if err != nil {
		return err
	}
	if err = r.settle(store); err == nil {
		err = rows(store, note)
	}
	return errors.Join(err, store.Close())
}

// opened opens the database and uses it.
func opened(engine Engine, options OpenOptions, dir string, use func(Store) error) error {
	store, err := engine.Open(dir, options)
	if err != nil {
		return err
	}
	return errors.Join(use(store), store.Close())
}

func noted(note string, work func() (outcome, error)) func() (outcome, error) {
	return func() (outcome, error) {
		out, err := work()
		out.note = note
		return out, err
	}
}
