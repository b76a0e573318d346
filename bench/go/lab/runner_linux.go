package lab

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// dieWithTheRunner leaves no engine running when the lab is interrupted.
func dieWithTheRunner() {
	const setParentDeathSignal = 1 // PR_SET_PDEATHSIG
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setParentDeathSignal, uintptr(syscall.SIGKILL), 0)
	if errno != 0 {
		fmt.Fprintln(os.Stderr, "this process may outlive an interrupted run:", errno)
	}
}

// nextData is the next stretch of a file that is no hole, from a place on; an empty one at its end.
func nextData(file *os.File, at int64) (from, to int64, err error) {
	const seekData, seekHole = 3, 4
	from, err = file.Seek(at, seekData)
	if errors.Is(err, syscall.ENXIO) {
		return at, at, nil
	}
	if err == nil {
		to, err = file.Seek(from, seekHole)
	}
	return from, to, err
}

// settleDisk hands all that the system has cached to its devices.
func settleDisk() { syscall.Sync() }

// sleep ends as late as the system wakes a thread, some 50 us, and sooner than it should at a signal, which the runtime sends to preempt.
func sleep(wait time.Duration) {
	left := syscall.NsecToTimespec(int64(wait))
	_ = syscall.Nanosleep(&left, nil) // whoever waits looks at the clock
}
