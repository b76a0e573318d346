package lab

import (
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

// settleDisk hands all that the system has cached to its devices.
func settleDisk() { syscall.Sync() }
