//go:build !esker_source

package ctuple

// The library as `cargo cinstall -p esker-c` installs it, found by pkg-config.

// #cgo pkg-config: --static esker
import "C"
