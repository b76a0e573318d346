package lab

// Measures one piece of work as crates/esker-bench/src/measure.rs does: time, processor time, memory, bytes moved.
//
// M1. Only the work is timed: counters are read before the clock starts and after it has stopped.
// M2. The peak of resident memory is that of this piece of work: the kernel's mark is reset before it, where it can be.
// M3. The collector ends its work on what came before the row before the row begins.
// M4. Whoever looks at the files while work goes on spends little of its time with that, however many they are: between two walks lies 20
// times what the first took, and its figure stands for as long.

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	watchEvery   = 50 * time.Millisecond
	looksPerWalk = 10 // the files are looked at once in this many looks at the process
	restPerWalk  = 20 // M4
	idleWindows  = 3
	idleShare    = 0.03              // of a window that may be spent computing by a process at rest
	idleWaitLong = 600 * time.Second // how long to wait for an engine that never rests
)

// stepSeconds is set by the runner in the environment: how long one step may take before the lab ends it.
const stepSeconds = "ESKER_BENCH_STEP_SECONDS"

// idleWaitMax is how long to wait for an engine to come to rest: a quarter of a step at most, since a load and the opening behind it
// have a wait each in one step, so that the wait is given up before the lab gives up the engine.
func idleWaitMax() time.Duration {
	step, err := strconv.ParseUint(os.Getenv(stepSeconds), 10, 32)
	if err != nil {
		return idleWaitLong
	}
	return min(idleWaitLong, time.Duration(step)*time.Second/4)
}

func measure(dir string, work func() error) (float64, usage, error) {
	runtime.GC()                                              // M3
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // M2: not there on every system
	peaks := watchPeaks(dir)
	before := countersOf(dir)
	start := time.Now()
	err := work()
	seconds := time.Since(start).Seconds()
	var u usage
	u.add(before, countersOf(dir))
	u.reach(peaks())
	status := procFields("/proc/self/status")
	u.PeakRssBytes, u.RssAnonBytes, u.RssFileBytes = status["VmHWM"]*1024, status["RssAnon"]*1024, status["RssFile"]*1024
	u.PeakAnonBytes, u.PeakFileBytes = max(u.PeakAnonBytes, u.RssAnonBytes), max(u.PeakFileBytes, u.RssFileBytes)
	u.size(dir)
	return seconds, u, err
}

// size looks at what the database takes on disk.
func (u *usage) size(dir string) {
	disk := diskBytes(dir)
	u.DiskBytes, u.DiskAllocatedBytes = disk.lengths, disk.allocated
	u.PeakDiskBytes = max(u.PeakDiskBytes, disk.allocated)
}

// peaks are the most that was seen: of anonymous memory, of mapped file pages, and of what the files occupied.
type peaks struct{ anon, file, disk uint64 }

func (u *usage) reach(p peaks) {
	u.PeakAnonBytes, u.PeakFileBytes = max(u.PeakAnonBytes, p.anon), max(u.PeakFileBytes, p.file)
	u.PeakDiskBytes = max(u.PeakDiskBytes, p.disk)
}

// counters only grow while a process works.
type counters struct {
	written, read             uint64 // by this process, as Linux counts it
	deviceWritten, deviceRead uint64 // by whomever
	cpu                       float64
}

func countersOf(dir string) counters {
	io := procFields("/proc/self/io")
	c := counters{written: io["write_bytes"], read: io["read_bytes"], cpu: cpuSeconds()}
	c.deviceWritten, c.deviceRead = deviceBytes(dir)
	return c
}

// add counts what happened between two looks.
func (u *usage) add(before, after counters) {
	since := func(before, after uint64) uint64 { return after - min(before, after) }
	u.WrittenBytes += since(before.written, after.written)
	u.ReadBytes += since(before.read, after.read)
	u.DeviceWrittenBytes += since(before.deviceWritten, after.deviceWritten)
	u.DeviceReadBytes += since(before.deviceRead, after.deviceRead)
	u.CPUSeconds += after.cpu - before.cpu
}

// watchPeaks looks at the process and at the files under dir now and then; what it gives ends that and says the most that was seen.
func watchPeaks(dir string) func() peaks {
	stop, highest := make(chan struct{}), make(chan peaks)
	go func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		var seen peaks
		var files walks
		for looks := 1; ; looks++ {
			status := procFields("/proc/self/status")
			seen.anon, seen.file = max(seen.anon, status["RssAnon"]*1024), max(seen.file, status["RssFile"]*1024)
			if looks%looksPerWalk == 0 {
				seen.disk = max(seen.disk, files.size(dir))
			}
			select {
			case <-stop:
				highest <- seen
				return
			case <-ticker.C:
			}
		}
	}()
	return func() peaks {
		close(stop)
		return <-highest
	}
}

// walks are those through a directory whose engine is at work (M4).
type walks struct {
	allocated uint64
	notBefore time.Time
}

// size is what the files under dir occupy, as the last walk saw it.
func (w *walks) size(dir string) uint64 {
	return w.walked(time.Now, func() uint64 { return diskBytes(dir).allocated })
}

func (w *walks) walked(now func() time.Time, walk func() uint64) uint64 {
	if start := now(); !start.Before(w.notBefore) {
		w.allocated = walk()
		end := now()
		w.notBefore = end.Add(restPerWalk * end.Sub(start))
	}
	return w.allocated
}

// waitUntilIdle waits until this process has neither computed nor moved bytes for three windows, but no longer than most; it gives the time
// for which it was busy, and whether it came to rest. A window of 0 is for a process without background work.
func waitUntilIdle(window, most time.Duration) (time.Duration, bool) {
	start := time.Now()
	busyUntil := start
	quiet := 0
	for ; window > 0 && quiet < idleWindows && time.Since(start) < most; quiet++ {
		io, cpu := procFields("/proc/self/io"), cpuSeconds()
		time.Sleep(window)
		now := procFields("/proc/self/io")
		isQuiet := cpuSeconds()-cpu <= idleShare*window.Seconds() && now["read_bytes"] == io["read_bytes"] &&
			now["write_bytes"] == io["write_bytes"]
		if !isQuiet {
			busyUntil, quiet = time.Now(), -1
		}
	}
	return busyUntil.Sub(start), window == 0 || quiet == idleWindows
}

// deviceBytes is what the device under dir has moved so far, from /sys: sectors of 512 bytes; zero where that cannot be known.
func deviceBytes(dir string) (written, read uint64) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	major, minor := deviceNumbers(uint64(stat.Dev))
	text, _ := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", major, minor))
	fields := strings.Fields(string(text))
	sectors := func(n int) uint64 {
		if n >= len(fields) {
			return 0
		}
		number, _ := strconv.ParseUint(fields[n], 10, 64)
		return number
	}
	return sectors(6) * 512, sectors(2) * 512
}

// deviceNumbers takes the number of a device apart, as Linux puts it together.
func deviceNumbers(device uint64) (major, minor uint64) {
	return device>>8&0xfff | device>>32&0xfffff000, device&0xff | device>>12&0xffffff00
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
