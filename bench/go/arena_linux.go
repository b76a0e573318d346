//go:build cgo && linux

package main

// The C library allocates from one arena. With one for every few threads, glibc hardly returns memory.
// mallopt must be called before the first thread takes an arena, which is before Go starts.

// extern int mallopt(int, int) __attribute__((weak));
//
// // Not every C library has it; -8 is glibc's M_ARENA_MAX.
// static __attribute__((constructor)) void one_arena(void) {
// 	if (mallopt) mallopt(-8, 1);
// }
import "C"
