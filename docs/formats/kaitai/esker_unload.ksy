meta:
  id: esker_unload
  title: Unloaded Esker database
  endian: le
  imports:
    - esker_recordio
    - esker_string
    - esker_varint
doc: |
  A record file with the codec LZ4. A compressed record is shown as its bytes: after decompression (an LZ4
  block of `frame.len_raw` bytes), type `content` parses it.
doc-ref: docs/formats/unload.md
seq:
  - id: header
    type: esker_recordio::header
  - id: head
    type: head_record
  - id: records
    type: record
    repeat: eos
types:
  head_record:
    seq:
      - id: frame
        type: esker_recordio::frame
      - id: body
        size: frame.len_stored
        type:
          switch-on: frame.is_compressed
          cases:
            false: head
  head:
    seq:
      - id: magic
        contents: esker unload
      - id: version
        type: esker_varint
      - id: id
        size: 8
      - id: seqno
        type: esker_varint
      - id: num_keyspaces
        type: esker_varint
      - id: keyspaces
        type: keyspace_of_head
        repeat: expr
        repeat-expr: num_keyspaces.value
  keyspace_of_head:
    seq:
      - id: name
        type: esker_string
      - id: num_entries
        type: esker_varint
  record:
    seq:
      - id: frame
        type: esker_recordio::frame
      - id: body
        size: frame.len_stored
        type:
          switch-on: frame.is_compressed
          cases:
            false: content
  content:
    seq:
      - id: kind
        type: u1
        enum: kind
      - id: body
        type:
          switch-on: kind
          cases:
            'kind::keyspace': keyspace
            'kind::entries': entries
            'kind::keyspace_end': esker_varint
            'kind::end': esker_varint
  keyspace:
    seq:
      - id: which
        type: esker_varint
      - id: options
        type: option
        repeat: eos
  option:
    seq:
      - id: code
        type: esker_varint
      - id: value
        type: esker_string
  entries:
    seq:
      - id: entries
        type: entry
        repeat: eos
  entry:
    seq:
      - id: key
        type: esker_string
      - id: expires_ms
        doc: In milliseconds since 1970; 0 for never.
        type: esker_varint
      - id: value
        type: esker_string
enums:
  kind:
    1: keyspace
    2: entries
    3: keyspace_end
    4: end
