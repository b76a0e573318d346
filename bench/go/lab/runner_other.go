//go:build !linux

package lab

import "time"

// dieWithTheRunner has no counterpart here.
func dieWithTheRunner() {}

// sleep is that of Go's runtime, which may be 1 ms late.
func sleep(wait time.Duration) { time.Sleep(wait) }
