//go:build cgo && linux

package main

// The C library allocates from one arena, not from one for each few threads, which glibc does and hardly gives back. It is told before
// the first thread has taken one: before Go begins.

// extern int mallopt(int, int) __attribute__((weak));
//
// // Not every C library has it; -8 is glibc's M_ARENA_MAX.
// static __attribute__((constructor)) void one_arena(void) {
// 	if (mallopt) mallopt(-8, 1);
// }
import "C"
