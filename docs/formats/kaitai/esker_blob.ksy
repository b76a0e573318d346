meta:
  id: esker_blob
  title: Esker blob file
  file-extension: blob
  endian: le
  imports:
    - esker_varint
doc: |
  The values between header and map have no framing: pointers in tables and in the log say where they are.
  Type `pointer` parses these.
doc-ref: docs/formats/blob.md
seq:
  - id: magic
    contents: eskerBLB
  - id: version
    type: u4
    valid: 1
  - id: flags
    type: u4
    valid: 0
  - id: number
    type: u8
  - id: salt
    type: u4
  - id: crc
    doc: CRC-32C of the 28 bytes before.
    type: u4
instances:
  tail:
    pos: _io.size - 4
    size: 4
  has_map:
    value: tail == [0x62, 0x6d, 0x61, 0x70]
  num_moved:
    pos: _io.size - 16
    type: u8
    if: has_map
  moved:
    pos: _io.size - 16 - 16 * num_moved
    type: moved
    repeat: expr
    repeat-expr: num_moved
    if: has_map
types:
  moved:
    seq:
      - id: pointer_offset
        doc: Offset of the value in the file that pointers name.
        type: u8
      - id: offset
        doc: Its offset in this file.
        type: u8
  pointer:
    seq:
      - id: form
        type: u1
        enum: form
      - id: file
        type: esker_varint
      - id: offset
        type: esker_varint
      - id: len_value
        type: esker_varint
      - id: len_stored
        type: esker_varint
        if: form != form::raw
      - id: crc
        doc: CRC-32C of the stored bytes; of chunks, that of their table.
        type: u4
enums:
  form:
    0: raw
    1: lz4
    2: chunks
