package tuple

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"unicode/utf8"
)

// Unpack decodes a key. It checks all bytes: the fields it returns are packed to the same key.
func Unpack(key []byte) (Tuple, error) {
	d := decoder{key}
	return d.fields(0)
}

// decoder has what is not read yet.
type decoder struct{ rest []byte }

func (d *decoder) take(length int) ([]byte, error) {
	if length > len(d.rest) {
		return nil, invalid("the key ends within a field")
	}
	taken := d.rest[:length]
	d.rest = d.rest[length:]
	return taken, nil
}

// fields reads the fields of the key, or those of a tuple and its end.
func (d *decoder) fields(depth int) (Tuple, error) {
	fields := Tuple{}
	for {
		if len(d.rest) == 0 {
			if depth > 0 {
				return nil, invalid("the key ends within a tuple")
			}
			return fields, nil
		}
		if depth > 0 && d.rest[0] == end {
			if len(d.rest) == 1 || d.rest[1] != escape {
				d.rest = d.rest[1:]
				return fields, nil
			}
			fields, d.rest = append(fields, nil), d.rest[2:]
			continue
		}
		field, err := d.field(depth)
		if err != nil {
			return nil, err
		}
		fields = append(fields, field)
	}
}

func (d *decoder) field(depth int) (any, error) {
	code := d.rest[0]
	if code >= codeNegative && code <= codePositive {
		return d.integer()
	}
	d.rest = d.rest[1:]
	switch code {
	case codeNull:
		return nil, nil
	case codeBytes:
		return d.escaped()
	case codeText:
		text, err := d.escaped()
		if err == nil && !utf8.Valid(text) {
			err = invalid("text is not UTF-8")
		}
		return string(text), err
	case codeTuple:
		if depth >= DepthMax {
			return nil, invalid("tuples are nested more than %d deep", DepthMax)
		}
		return d.fields(depth + 1)
	case codeFloat:
		four, err := d.take(4)
		if err != nil {
			return nil, err
		}
		bits := binary.BigEndian.Uint32(four)
		return math.Float32frombits(bits ^ (uint32(int32(^bits)>>31) | 1<<31)), nil
	case codeDouble:
		eight, err := d.take(8)
		if err != nil {
			return nil, err
		}
		bits := binary.BigEndian.Uint64(eight)
		return math.Float64frombits(bits ^ (uint64(int64(^bits)>>63) | 1<<63)), nil
	case codeFalse, codeTrue:
		return code == codeTrue, nil
	case codeUUID:
		sixteen, err := d.take(len(UUID{}))
		if err != nil {
			return nil, err
		}
		return UUID(sixteen), nil
	}
	return nil, invalid("a field has the code %#02x", code)
}

// escaped reads bytes up to a zero byte that no escape follows.
func (d *decoder) escaped() ([]byte, error) {
	text := []byte{}
	for {
		at := bytes.IndexByte(d.rest, end)
		if at < 0 {
			return nil, invalid("the key ends within text or bytes")
		}
		text = append(text, d.rest[:at]...)
		d.rest = d.rest[at+1:]
		if len(d.rest) == 0 || d.rest[0] != escape {
			return text, nil
		}
		text, d.rest = append(text, end), d.rest[1:]
	}
}

func (d *decoder) integer() (any, error) {
	code := d.rest[0]
	d.rest = d.rest[1:]
	isNegative := code < codeZero
	length := int(code) - codeZero
	if isNegative {
		length = -length
	}
	if length > shortMax {
		byteOfLength, err := d.take(1)
		if err != nil {
			return nil, err
		}
		if length = int(byteOfLength[0]); isNegative {
			length = int(^byteOfLength[0])
		}
		if length <= shortMax || length > longMax {
			return nil, invalid("an integer has %d bytes", length)
		}
	}
	stored, err := d.take(length)
	if err != nil {
		return nil, err
	}
	magnitude := bytes.Clone(stored)
	if isNegative {
		for at := range magnitude {
			magnitude[at] = ^magnitude[at]
		}
	}
	if length > 0 && magnitude[0] == 0 {
		return nil, invalid("an integer is stored in more bytes than it needs")
	}
	return integerOf(isNegative, magnitude)
}

// integerOf returns the smallest type that has the integer.
func integerOf(isNegative bool, magnitude []byte) (any, error) {
	value := new(big.Int).SetBytes(magnitude)
	if isNegative {
		value.Neg(value)
	}
	switch {
	case value.IsInt64():
		return value.Int64(), nil
	case value.IsUint64():
		return value.Uint64(), nil
	case value.Cmp(least) < 0:
		return nil, invalid("an integer is below those of 128 bits")
	}
	return value, nil
}
