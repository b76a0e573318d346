meta:
  id: esker_recordio
  title: Esker record file
  endian: le
  bit-endian: le
doc: |
  A record file that ends after a record. After a crash a torn tail may follow. Checksums (CRC-32C) are not
  checked, and compressed payloads are not decompressed.
doc-ref: docs/formats/recordio.md
seq:
  - id: header
    type: header
  - id: records
    type: record
    repeat: eos
types:
  header:
    seq:
      - id: magic
        contents: [0x89, ESKREC, 0x0a]
      - id: version
        type: u1
        valid: 1
      - id: codec
        type: u1
        enum: codec
      - id: flags
        type: u2
        valid: 0
      - id: salt
        type: u4
      - id: crc
        doc: Of the 16 bytes before.
        type: u4
  record:
    seq:
      - id: frame
        type: frame
      - id: payload
        size: frame.len_stored
  frame:
    seq:
      - id: marker
        contents: [0xe5, 0x1c, 0xf7]
      - id: is_compressed
        type: b1
      - id: reserved
        type: b7
        valid: 0
      - id: len_raw
        type: u4
      - id: len_stored
        type: u4
      - id: payload_crc
        type: u4
      - id: header_crc
        doc: Of the file's salt, the offset of this frame in the file (8 bytes), and the 16 bytes before.
        type: u4
enums:
  codec:
    0: none
    1: gzip
    2: snappy
    3: lz4
    4: zstd
