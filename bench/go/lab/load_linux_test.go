package lab

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestASignalEndsNoWait(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process, thread, waited := syscall.Getpid(), syscall.Gettid(), make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		for {
			select {
			case <-waited:
				return
			case <-time.After(100 * time.Microsecond):
			}
			// That with which the runtime preempts.
			if err := syscall.Tgkill(process, thread, syscall.SIGURG); err != nil {
				t.Error(err)
				return
			}
		}
	})
	due := time.Now().Add(20 * time.Millisecond)
	waitUntil(due)
	if early := time.Until(due); early > 0 {
		t.Error("too early by", early)
	}
	close(waited)
	signals.Wait()
}
