// Package ctuple decodes and encodes tuples by the C library, to compare package tuple with it in tests.
package ctuple

// #include <stdlib.h>
// #include <esker.h>
// static esker_slice bytes_of(const uint8_t *data, size_t len) { return esker_bytes(data, len); }
import "C"

import (
	"math"
	"unsafe"

	"esker.dev/esker"
	"esker.dev/esker/tuple"
)

// Decode decodes a key. ok: it is a tuple. small: all integers have at most 64 bits; else fields is nil.
func Decode(key []byte) (fields tuple.Tuple, ok, small bool) {
	var c *C.esker_tuple
	slice := C.bytes_of((*C.uint8_t)(unsafe.SliceData(key)), C.size_t(len(key)))
	if C.esker_tuple_unpack(slice, &c, nil) != C.ESKER_OK {
		return nil, false, false
	}
	defer C.esker_tuple_free(c)
	fields = tuple.Tuple{}
	for at := range C.esker_tuple_size(c) {
		var field C.esker_field
		if C.esker_tuple_get(c, at, &field, nil) != C.ESKER_OK {
			return nil, true, false
		}
		made, isSmall := fieldOf(&field)
		if !isSmall {
			return nil, true, false
		}
		fields = append(fields, made)
	}
	return fields, true, true
}

func fieldOf(field *C.esker_field) (any, bool) {
	text := C.GoBytes(unsafe.Pointer(field.bytes.data), C.int(field.bytes.len))
	switch field.kind {
	case C.ESKER_FIELD_BYTES:
		return text, true
	case C.ESKER_FIELD_TEXT:
		return string(text), true
	case C.ESKER_FIELD_TUPLE:
		fields, _, small := Decode(text)
		return fields, small
	case C.ESKER_FIELD_INT:
		return int64(field.integer), true
	case C.ESKER_FIELD_UINT:
		return uint64(field.integer), true
	case C.ESKER_FIELD_FLOAT:
		return float32(field.number), true
	case C.ESKER_FIELD_DOUBLE:
		return float64(field.number), true
	case C.ESKER_FIELD_BOOL:
		return field.integer != 0, true
	case C.ESKER_FIELD_UUID:
		return tuple.UUID(text), true
	}
	return nil, true
}

// Encode encodes fields as Decode returns them.
func Encode(fields tuple.Tuple) ([]byte, error) {
	c := C.esker_tuple_new()
	defer C.esker_tuple_free(c)
	for _, field := range fields {
		if status := add(c, field); status != C.ESKER_OK {
			return nil, esker.Status(status)
		}
	}
	var key C.esker_value
	if status := C.esker_tuple_pack(c, &key, nil); status != C.ESKER_OK {
		return nil, esker.Status(status)
	}
	defer C.esker_value_free(&key)
	return C.GoBytes(unsafe.Pointer(key.data), C.int(key.len)), nil
}

func add(c *C.esker_tuple, field any) C.esker_status {
	made := C.esker_field{kind: C.ESKER_FIELD_NULL}
	var text []byte
	switch f := field.(type) {
	case []byte:
		made.kind, text = C.ESKER_FIELD_BYTES, f
	case string:
		made.kind, text = C.ESKER_FIELD_TEXT, []byte(f)
	case tuple.Tuple:
		packed, err := Encode(f)
		if err != nil {
			return C.ESKER_INVALID
		}
		made.kind, text = C.ESKER_FIELD_TUPLE, packed
	case int64:
		made.kind, made.integer = C.ESKER_FIELD_INT, C.int64_t(f)
	case uint64:
		made.kind, made.integer = C.ESKER_FIELD_UINT, C.int64_t(f)
	case float32:
		made.kind, made.number = C.ESKER_FIELD_FLOAT, C.double(f)
	case float64:
		made.kind, made.number = C.ESKER_FIELD_DOUBLE, C.double(f)
	case bool:
		made.kind = C.ESKER_FIELD_BOOL
		if f {
			made.integer = 1
		}
	case tuple.UUID:
		made.kind, text = C.ESKER_FIELD_UUID, f[:]
	}
	copied := C.CBytes(text)
	defer C.free(copied)
	made.bytes = C.bytes_of((*C.uint8_t)(copied), C.size_t(len(text)))
	return C.esker_tuple_add(c, made, nil)
}

// IsSignalling returns whether C changes the bits of a float: a double has no signalling NaN of 32 bits.
func IsSignalling(f float32) bool {
	bits := math.Float32bits(f)
	return f != f && bits&(1<<22) == 0
}
