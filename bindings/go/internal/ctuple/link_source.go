//go:build esker_source

package ctuple

// The library in a checkout of the source: `cargo build -p esker-c --release` makes it in target/release.
// CGO_LDFLAGS=-L... names another directory.

// #cgo CFLAGS: -I${SRCDIR}/../../../../crates/esker-c/include
// #cgo LDFLAGS: -L${SRCDIR}/../../../../target/release
// #cgo linux LDFLAGS: -l:libesker_c.a -lgcc_s -lutil -lrt -lpthread -lm -ldl
// #cgo !linux LDFLAGS: -lesker_c
import "C"
