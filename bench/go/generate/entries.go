package generate

// The entries of suite time: entries.rs in crates/esker-bench-api says what they are made of.

import "math/bits"

const (
	EntryValueBytes   = 100
	EntriesPerLasting = 10 // one in this many never expires
)

// Entries are the entries of a seed. They expire from HoldMs on, evenly over SpreadMs: milliseconds after the
// first put.
type Entries struct{ Seed, HoldMs, SpreadMs uint64 }

// Key is that of entry i.
func (e Entries) Key(i uint64) ObigKey { return ObigRandom(e.Seed, i) }

// Value fills value with the value of entry i.
func (e Entries) Value(i uint64, value *[EntryValueBytes]byte) []byte {
	key := e.Key(i)
	return ObigValue(&key, value[:])
}

// ExpiresMs says when entry i expires, in milliseconds from the first put; false if it never does.
func (e Entries) ExpiresMs(i uint64) (uint64, bool) {
	share, _ := bits.Mul64(e.SpreadMs, Word(e.Seed, i))
	return e.HoldMs + share, i%EntriesPerLasting != 0
}

// LastingEntries is how many of the first entries never expire.
func LastingEntries(count uint64) uint64 { return (count + EntriesPerLasting - 1) / EntriesPerLasting }
