package lab

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// dieWithTheRunner ends this process with the lab, so that an interrupted lab leaves no engine running.
func dieWithTheRunner() {
	const setParentDeathSignal = 1 // PR_SET_PDEATHSIG
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setParentDeathSignal, uintptr(syscall.SIGKILL), 0)
	if errno != 0 {
		fmt.Fprintln(os.Stderr, "this process may outlive an interrupted run:", errno)
	}
}

// sleep ends when the system wakes the thread, some 50 us late. It may end early at a signal, which the
// runtime sends to preempt.
func sleep(wait time.Duration) {
	left := syscall.NsecToTimespec(int64(wait))
	_ = syscall.Nanosleep(&left, nil) // the caller looks at the clock
}
