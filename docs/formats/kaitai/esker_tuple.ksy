meta:
  id: esker_tuple
  title: Typed key of Esker, a tuple of FoundationDB
  endian: be
  bit-endian: be
doc-ref: docs/formats/tuple.md
seq:
  - id: fields
    type: field(false)
    repeat: eos
types:
  field:
    params:
      - id: is_nested
        type: bool
    seq:
      - id: code
        type: u1
      - id: null_mark
        doc: Distinguishes a null in a tuple from the end of the tuple.
        contents: [0xff]
        if: is_null and is_nested
      - id: content
        if: not is_null and not is_end
        type:
          switch-on: code
          cases:
            0x01: text
            0x02: text
            0x05: nested
            0x0b: long_integer(true)
            0x0c: integer(8)
            0x0d: integer(7)
            0x0e: integer(6)
            0x0f: integer(5)
            0x10: integer(4)
            0x11: integer(3)
            0x12: integer(2)
            0x13: integer(1)
            0x14: integer(0)
            0x15: integer(1)
            0x16: integer(2)
            0x17: integer(3)
            0x18: integer(4)
            0x19: integer(5)
            0x1a: integer(6)
            0x1b: integer(7)
            0x1c: integer(8)
            0x1d: long_integer(false)
            0x20: integer(4)
            0x21: integer(8)
            0x26: integer(0)
            0x27: integer(0)
            0x30: integer(16)
            _: unknown
    instances:
      next:
        pos: _io.pos
        type: u1
      is_end:
        value: is_nested and code == 0 and (_io.eof or next != 0xff)
      is_null:
        value: code == 0 and not is_end
  unknown:
    seq:
      - id: refused
        type: u1
        valid:
          expr: false
  text:
    doc: Bytes or UTF-8. An inner 00 is followed by FF.
    seq:
      - id: chunks
        type: chunk
        repeat: until
        repeat-until: not _.is_followed
  chunk:
    seq:
      - id: data
        terminator: 0
      - id: escape
        contents: [0xff]
        if: is_followed
    instances:
      next:
        pos: _io.pos
        type: u1
      is_followed:
        value: not _io.eof and next == 0xff
  nested:
    seq:
      - id: fields
        type: field(true)
        repeat: until
        repeat-until: _.is_end
  integer:
    doc: |
      Big-endian. Of a negative integer, the complement of the magnitude. A float has all bits inverted if it
      is negative, else the sign bit.
    params:
      - id: num_bytes
        type: u1
    seq:
      - id: data
        size: num_bytes
  long_integer:
    params:
      - id: is_negative
        type: bool
    seq:
      - id: len_code
        type: u1
      - id: data
        size: 'is_negative ? 255 - len_code : len_code'
