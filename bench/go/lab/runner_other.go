//go:build !linux

package lab

import (
	"io"
	"os"
	"time"
)

// dieWithTheRunner has no counterpart here.
func dieWithTheRunner() {}

// nextData is all that is left of a file.
func nextData(file *os.File, at int64) (from, to int64, err error) {
	end, err := file.Seek(0, io.SeekEnd)
	return at, max(at, end), err
}

// settleDisk has no counterpart here.
func settleDisk() {}

// sleep is that of Go's runtime, which may be 1 ms late.
func sleep(wait time.Duration) { time.Sleep(wait) }
