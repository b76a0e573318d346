// Package tuple makes keys of several fields, whose bytes sort in the order of the fields: the tuple encoding
// of FoundationDB, which all languages of Esker share. docs/formats/tuple.md describes the bytes.
//
//	key, err := tuple.Pack("user", 42, "name")
//	fields, err := tuple.Unpack(key)
package tuple

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"unicode/utf8"
)

// Tuple holds fields. Each is nil, []byte, string, bool, an integer type, *big.Int of at most 16 bytes,
// float32, float64, UUID or Tuple.
//
// Unpack returns integers as int64, as uint64 if they need it, or as *big.Int.
type Tuple []any

// UUID is a field of 16 bytes, in network order.
type UUID [16]byte

// DepthMax is how deep tuples may be nested.
const DepthMax = 64

const (
	codeNull     = 0x00
	codeBytes    = 0x01
	codeText     = 0x02
	codeTuple    = 0x05
	codeNegative = 0x0B // 9 to 16 bytes; the length follows
	codeZero     = 0x14 // n bytes: codeZero + n, or codeZero - n
	codePositive = 0x1D // 9 to 16 bytes; the length follows
	codeFloat    = 0x20
	codeDouble   = 0x21
	codeFalse    = 0x26
	codeTrue     = 0x27
	codeUUID     = 0x30

	end    = 0x00
	escape = 0xFF // follows a zero byte that ends nothing

	shortMax = 8
	longMax  = 16
)

// ErrInvalid is what errors.Is finds in the errors of this package.
var ErrInvalid = errors.New("tuple: invalid")

func invalid(format string, arguments ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, arguments...))
}

// Pack encodes fields.
func Pack(fields ...any) ([]byte, error) { return Tuple(fields).Pack() }

// Pack encodes the tuple.
func (t Tuple) Pack() ([]byte, error) { return t.AppendTo([]byte{}) }

// AppendTo appends the encoded tuple to bytes.
func (t Tuple) AppendTo(to []byte) ([]byte, error) { return appendFields(to, t, 0) }

// Range returns the range of the keys that begin with the fields: its first key, and the first key behind it.
func (t Tuple) Range() (start, limit []byte, err error) {
	start, err = t.Pack()
	return start, append(bytes.Clone(start), escape), err
}

func appendFields(to []byte, fields Tuple, depth int) ([]byte, error) {
	var err error
	for _, field := range fields {
		if to, err = appendField(to, field, depth); err != nil {
			return nil, err
		}
	}
	return to, nil
}

func appendField(to []byte, field any, depth int) ([]byte, error) {
	switch f := field.(type) {
	case nil:
		if to = append(to, codeNull); depth > 0 {
			to = append(to, escape)
		}
		return to, nil
	case []byte:
		return appendEscaped(append(to, codeBytes), f), nil
	case string:
		if !utf8.ValidString(f) {
			return nil, invalid("text is not UTF-8: %q", f)
		}
		return appendEscaped(append(to, codeText), []byte(f)), nil
	case bool:
		if f {
			return append(to, codeTrue), nil
		}
		return append(to, codeFalse), nil
	case float32:
		bits := math.Float32bits(f)
		return binary.BigEndian.AppendUint32(append(to, codeFloat), bits^(uint32(int32(bits)>>31)|1<<31)), nil
	case float64:
		bits := math.Float64bits(f)
		return binary.BigEndian.AppendUint64(append(to, codeDouble), bits^(uint64(int64(bits)>>63)|1<<63)), nil
	case UUID:
		return append(append(to, codeUUID), f[:]...), nil
	case Tuple:
		if depth >= DepthMax {
			return nil, invalid("tuples are nested more than %d deep", DepthMax)
		}
		to, err := appendFields(append(to, codeTuple), f, depth+1)
		return append(to, end), err
	}
	return appendInteger(to, field)
}

func appendEscaped(to, text []byte) []byte {
	for {
		at := bytes.IndexByte(text, end)
		if at < 0 {
			return append(append(to, text...), end)
		}
		to = append(append(to, text[:at+1]...), escape)
		text = text[at+1:]
	}
}

func appendInteger(to []byte, field any) ([]byte, error) {
	switch f := field.(type) {
	case int:
		return appendInt(to, int64(f)), nil
	case int8:
		return appendInt(to, int64(f)), nil
	case int16:
		return appendInt(to, int64(f)), nil
	case int32:
		return appendInt(to, int64(f)), nil
	case int64:
		return appendInt(to, f), nil
	case uint:
		return appendUint(to, uint64(f)), nil
	case uint8:
		return appendUint(to, uint64(f)), nil
	case uint16:
		return appendUint(to, uint64(f)), nil
	case uint32:
		return appendUint(to, uint64(f)), nil
	case uint64:
		return appendUint(to, f), nil
	case *big.Int:
		if f == nil {
			return nil, invalid("a *big.Int is nil")
		}
		if len(f.Bytes()) > longMax || f.Cmp(least) < 0 {
			return nil, invalid("an integer takes more than %d bytes", longMax)
		}
		return appendMagnitude(to, f.Sign() < 0, f.Bytes()), nil
	}
	return nil, invalid("a field has the type %T", field)
}

// least is the smallest integer: that of 128 bits.
var least = new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 127))

func appendUint(to []byte, value uint64) []byte {
	whole := binary.BigEndian.AppendUint64(nil, value)
	return appendMagnitude(to, false, bytes.TrimLeft(whole, "\x00"))
}

func appendInt(to []byte, value int64) []byte {
	if value >= 0 {
		return appendUint(to, uint64(value))
	}
	whole := binary.BigEndian.AppendUint64(nil, -uint64(value))
	return appendMagnitude(to, true, bytes.TrimLeft(whole, "\x00"))
}

// appendMagnitude appends an integer whose magnitude has no leading zero bytes.
func appendMagnitude(to []byte, isNegative bool, magnitude []byte) []byte {
	var invert byte
	if isNegative {
		invert = 0xFF
	}
	length := byte(len(magnitude))
	switch {
	case length <= shortMax && isNegative:
		to = append(to, codeZero-length)
	case length <= shortMax:
		to = append(to, codeZero+length)
	case isNegative:
		to = append(to, codeNegative, ^length)
	default:
		to = append(to, codePositive, length)
	}
	for _, digit := range magnitude {
		to = append(to, digit^invert)
	}
	return to
}
