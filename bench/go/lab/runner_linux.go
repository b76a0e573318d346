package lab

import (
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

// sleep ends as late as the system wakes a thread, some 50 us, and sooner than it should at a signal, which the runtime sends to preempt.
func sleep(wait time.Duration) {
	left := syscall.NsecToTimespec(int64(wait))
	_ = syscall.Nanosleep(&left, nil) // whoever waits looks at the clock
}
