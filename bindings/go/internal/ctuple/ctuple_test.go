package ctuple

import (
	"bytes"
	"math"
	"math/big"
	"testing"

	"esker.dev/esker/tuple"
)

// samples are keys with all kinds of fields, and keys that are no tuples.
func samples(t testing.TB) [][]byte {
	nested := tuple.Tuple{nil}
	for range tuple.DepthMax - 1 {
		nested = tuple.Tuple{nested}
	}
	big128 := new(big.Int).Lsh(big.NewInt(1), 128)
	samples := [][]byte{{0x15}, {0x15, 0}, {0x1D, 8}, {0x05, 0, 0xFF}, {2, 0xFF, 0}, {0xFF}, {0x30, 1}, {0x0B}}
	for _, fields := range []tuple.Tuple{
		{},
		{nil, []byte("foo\x00bar"), "F\u00d4O\x00bar", tuple.Tuple{[]byte("foo\x00bar"), nil, tuple.Tuple{}}},
		{int64(-5551212), float32(-42), float64(math.Inf(-1)), true, false, tuple.UUID{1, 2}},
		{int64(math.MinInt64), int64(math.MaxInt64), uint64(math.MaxUint64), int64(0), int64(-256)},
		{new(big.Int).Neg(new(big.Int).Rsh(big128, 1)), new(big.Int).Sub(big128, big.NewInt(1)), math.NaN()},
		{nested},
	} {
		key, err := fields.Pack()
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, key)
	}
	return samples
}

func isSignalling(fields tuple.Tuple) bool {
	for _, field := range fields {
		switch f := field.(type) {
		case float32:
			if IsSignalling(f) {
				return true
			}
		case tuple.Tuple:
			if isSignalling(f) {
				return true
			}
		}
	}
	return false
}

// FuzzTuple checks that package tuple and C accept the same keys, and that all ways lead back to the key.
func FuzzTuple(f *testing.F) {
	for _, sample := range samples(f) {
		f.Add(sample)
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		fields, err := tuple.Unpack(key)
		byC, ok, small := Decode(key)
		if (err == nil) != ok {
			t.Fatalf("%x: Go says %v, C says %v", key, err, ok)
		}
		if err != nil {
			return
		}
		if packed, err := fields.Pack(); err != nil || !bytes.Equal(packed, key) {
			t.Fatalf("%x is packed again to %x, %v", key, packed, err)
		}
		if !small || isSignalling(fields) {
			return
		}
		if packed, err := byC.Pack(); err != nil || !bytes.Equal(packed, key) {
			t.Fatalf("%x, as C reads it, is packed to %x, %v", key, packed, err)
		}
		if packed, err := Encode(fields); err != nil || !bytes.Equal(packed, key) {
			t.Fatalf("%x is packed by C to %x, %v", key, packed, err)
		}
	})
}

func TestWhatCannotBePacked(t *testing.T) {
	nested := tuple.Tuple{}
	for range tuple.DepthMax + 1 {
		nested = tuple.Tuple{nested}
	}
	large := new(big.Int).Lsh(big.NewInt(1), 128)
	for _, field := range []any{"\xff", nested, large, new(big.Int).Neg(large), (*big.Int)(nil), struct{}{}} {
		if key, err := tuple.Pack(field); err == nil {
			t.Errorf("%v was packed to %x", field, key)
		}
	}
	start, end, err := tuple.Tuple{"ann"}.Range()
	inside, _ := tuple.Pack("ann", 7)
	outside, _ := tuple.Pack("ann\x00", 7)
	if err != nil || bytes.Compare(start, inside) > 0 || bytes.Compare(inside, end) >= 0 ||
		bytes.Compare(outside, end) < 0 {
		t.Errorf("%x to %x, %v", start, end, err)
	}
}
