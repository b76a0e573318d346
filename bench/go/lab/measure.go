package lab

// Memory and files of the process, for the curves of a row.
//
// Looking at the files costs little of the time of the work, however many there are. After a walk there is a
// pause of 20 times its duration, in which its result stands.

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// restPerWalk is the pause after a walk, as a multiple of its duration.
const restPerWalk = 20

// walks are those through a directory whose engine is at work.
type walks struct {
	allocated uint64
	notBefore time.Time
}

// size is what the files under dir occupy, as the last walk saw it.
func (w *walks) size(dir string) uint64 {
	return w.walked(time.Now, func() uint64 { return allocatedBytes(dir) })
}

func (w *walks) walked(now func() time.Time, walk func() uint64) uint64 {
	if start := now(); !start.Before(w.notBefore) {
		w.allocated = walk()
		end := now()
		w.notBefore = end.Add(restPerWalk * end.Sub(start))
	}
	return w.allocated
}

// procFields reads the lines "name: number ..." of a file of /proc; it is empty where there is none.
func procFields(path string) map[string]uint64 {
	text, _ := os.ReadFile(path)
	fields := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, rest, found := strings.Cut(line, ":")
		if words := strings.Fields(rest); found && len(words) > 0 {
			if number, err := strconv.ParseUint(words[0], 10, 64); err == nil {
				fields[name] = number
			}
		}
	}
	return fields
}

// allocatedBytes are those that all files under dir occupy. A file that goes away meanwhile counts nothing.
func allocatedBytes(dir string) (sum uint64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += uint64(stat.Blocks) * 512
		}
		return nil
	})
	return sum
}
