//go:build !linux

package lab

// dieWithTheRunner has no counterpart here.
func dieWithTheRunner() {}

// settleDisk has no counterpart here.
func settleDisk() {}
