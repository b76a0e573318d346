package lab

import (
	"errors"
	"fmt"
	"os"
	"syscall"
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
