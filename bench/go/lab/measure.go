package lab

// Measures one piece of work as crates/esker-bench/src/measure.rs does: time, processor time, memory, bytes moved.
//
// M1. Only the work is timed: counters are read before the clock starts and after it has stopped.
// M2. The peak of resident memory is that of this piece of work: the kernel's mark is reset before it, where it can be.

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func measure(dir string, work func() error) (float64, usage, error) {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // M2: not there on every system
	ioBefore := procFields("/proc/self/io")
	cpuBefore := cpuSeconds()
	start := time.Now()
	err := work()
	seconds := time.Since(start).Seconds()
	cpu := cpuSeconds() - cpuBefore
	io := procFields("/proc/self/io")
	status := procFields("/proc/self/status")
	disk := diskBytes(dir)
	u := usage{
		PeakRssBytes:       status["VmHWM"] * 1024,
		RssAnonBytes:       status["RssAnon"] * 1024,
		RssFileBytes:       status["RssFile"] * 1024,
		DiskBytes:          disk.lengths,
		DiskAllocatedBytes: disk.allocated,
		WrittenBytes:       io["write_bytes"] - ioBefore["write_bytes"],
		ReadBytes:          io["read_bytes"] - ioBefore["read_bytes"],
		CPUSeconds:         cpu,
	}
	return seconds, u, err
}

func cpuSeconds() float64 {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)*1e-6
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

type disk struct{ lengths, allocated uint64 }

// diskBytes sizes all files under dir. A file that goes away meanwhile counts nothing.
func diskBytes(dir string) disk {
	var sum disk
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		sum.lengths += uint64(info.Size())
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			sum.allocated += uint64(stat.Blocks) * 512
		}
		return nil
	})
	return sum
}
