meta:
  id: esker_wal
  title: Segment of Esker's write-ahead log
  file-extension: wal
  endian: le
  imports:
    - esker_string
    - esker_varint
doc: |
  The records of a segment up to its End record, or up to zeros. Behind them are zeros or what a recycled file
  held before. Checksums (CRC-32C) are not checked.
doc-ref: docs/formats/wal.md
seq:
  - id: header
    type: header
  - id: records
    type: record
    repeat: until
    repeat-until: _.kind == kind::end or _.kind == kind::zeros or _io.eof
types:
  header:
    seq:
      - id: magic
        contents: ESKERWAL
      - id: version
        type: u4
        valid: 1
      - id: len_made
        doc: Length with which the file was made.
        type: u4
      - id: number
        type: u8
      - id: database
        type: u4
      - id: crc
        doc: Of the 28 bytes before.
        type: u4
  record:
    seq:
      - id: header_crc
        type: u4
      - id: payload_crc
        type: u4
      - id: len_payload
        type: u4
      - id: synced_to
        type: u4
      - id: seqno_low
        type: u4
      - id: seqno_middle
        type: u2
      - id: seqno_high
        type: u1
      - id: kind
        type: u1
        enum: kind
      - id: payload
        size: len_payload
        type:
          switch-on: kind
          cases:
            'kind::full': commit
      - id: padding
        size: (8 - len_payload % 8) % 8
    instances:
      seqno:
        value: seqno_low + (seqno_middle + seqno_high * 65536) * 4294967296
  commit:
    seq:
      - id: num_counts
        type: esker_varint
      - id: counts
        doc: Keyspace id, zigzag of the change.
        type: esker_varint::several(2)
        repeat: expr
        repeat-expr: num_counts.value
      - id: ops
        type: op
        repeat: eos
  op:
    seq:
      - id: kind
        type: u1
        enum: op_kind
      - id: content
        type:
          switch-on: kind
          cases:
            'op_kind::remove': esker_string
            'op_kind::remove_expired': esker_string
            'op_kind::put': pair
            'op_kind::remove_range': pair
            'op_kind::put_blob': pair
            'op_kind::merge': pair
            'op_kind::put_expiring': pair
            'op_kind::put_blob_expiring': pair
            'op_kind::unresolved': numbers
            _: unknown
  unknown:
    seq:
      - id: refused
        doc: The length of an unknown op is unknown.
        type: u1
        valid:
          expr: false
  pair:
    seq:
      - id: key
        doc: An encoded key. Of a range, the first key removed.
        type: esker_string
      - id: value
        doc: Of a range, the first key not removed. Of a put that expires, the expiry in 8 bytes comes first.
        type: esker_string
  numbers:
    seq:
      - id: num
        type: esker_varint
      - id: content
        type: esker_varint::several(num.value)
enums:
  kind:
    0: zeros
    1: full
    2: first
    3: middle
    4: last
    5: end
  op_kind:
    0: remove
    1: put
    2: remove_range
    3: put_blob
    4: merge
    5: unresolved
    128: remove_expired
    129: put_expiring
    131: put_blob_expiring
