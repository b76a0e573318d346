package generate

// The items of suite shapes: shapes.rs in crates/esker-bench-api says what they are made of.

import (
	"encoding/binary"
	"fmt"
)

const (
	shapesRedundantBytes = 32 // from this size on, the second half of a value repeats the first
	shapesValues         = 0x5EED_0F5A_1A11_0E55
	shapesSites          = 2000
	shapesHashBytes      = 33
	shapesLongBytes      = 1000
	shapesLongShared     = 488
)

var (
	shapesSections = []string{"news", "docs/reference", "blog", "products/catalogue", "images", "en/wiki", "forum/thread", "about"}
	shapesWords    = []string{
		"storage", "engine", "a", "of", "fast", "transactions", "merge", "how-to", "log", "tree", "the", "release", "notes", "benchmark", "small",
		"introduction",
	}
	shapesPrefix = []byte("accounts/")
)

// Shape is a form of keys and values.
type Shape struct {
	Name       string
	KeyBytes   uint64 // for URLs the mean
	ValueBytes int
	key        func(seed, i uint64, key []byte) []byte
}

// Sequential is the shape whose keys ascend.
const Sequential = 0

// Shapes has all of them, in the order of the suite's groups.
var Shapes = []Shape{
	Sequential: {"integers in order", 8, 8, func(_, i uint64, key []byte) []byte { return binary.BigEndian.AppendUint64(key, i) }},
	{"integers", 8, 8, func(seed, i uint64, key []byte) []byte { return binary.BigEndian.AppendUint64(key, Mix64(seed+i)) }},
	{"20 B + 1 B", 20, 1, func(seed, i uint64, key []byte) []byte { return appendFill(key, 20, Word(seed, i)) }},
	{"URLs", 64, 100, shapesURL},
	{"hashes behind a prefix", uint64(len(shapesPrefix)) + shapesHashBytes, 300, func(seed, i uint64, key []byte) []byte {
		return appendFill(append(key, shapesPrefix...), shapesHashBytes, Word(seed, i))
	}},
	{"keys of 1 KB", shapesLongBytes, 8, func(seed, i uint64, key []byte) []byte {
		key = appendFill(key, shapesLongShared, seed)
		key = appendFill(key, shapesLongBytes-shapesLongShared-8, Word(seed, i))
		return binary.BigEndian.AppendUint64(key, i)
	}},
	{"values of 5 KB", 16, 5000, func(seed, i uint64, key []byte) []byte {
		random := ObigRandom(seed, i)
		return append(key, random[:]...)
	}},
}

// Key appends the key of item i to key.
func (s Shape) Key(seed, i uint64, key []byte) []byte { return s.key(seed, i, key) }

// Value fills value, which has ValueBytes bytes, with the value of item i.
func (s Shape) Value(seed, i uint64, value []byte) []byte {
	stream := Word(seed^shapesValues, i)
	if len(value) < shapesRedundantBytes {
		Fill(stream, value)
	} else {
		FillHalfRedundant(stream, value)
	}
	return value
}

// appendFill appends the first bytes of the stream of seed to key.
func appendFill(key []byte, bytes int, seed uint64) []byte {
	before := len(key)
	key = append(key, make([]byte, bytes)...)
	Fill(seed, key[before:])
	return key
}

func shapesURL(seed, i uint64, key []byte) []byte {
	draw := Word(seed, i)
	pick := func(shift int, from []string) string { return from[(draw>>shift)%uint64(len(from))] }
	return fmt.Appendf(key, "https://site-%04d.example/%s/%s-%s-%016x",
		draw%shapesSites, pick(16, shapesSections), pick(24, shapesWords), pick(32, shapesWords), Mix64(seed+i))
}
