meta:
  id: esker_manifest
  title: Esker manifest
  endian: le
  imports:
    - esker_recordio
    - esker_string
    - esker_varint
doc: A record file of version edits. Zeros or a torn tail may follow after a crash.
doc-ref: docs/formats/manifest.md
seq:
  - id: header
    type: esker_recordio::header
  - id: head
    type: head_record
  - id: edits
    type: edit_record
    repeat: eos
types:
  head_record:
    seq:
      - id: frame
        type: esker_recordio::frame
      - id: body
        type: head
        size: frame.len_stored
  head:
    seq:
      - id: magic
        contents: esker manifest
      - id: version
        type: esker_varint
  edit_record:
    doc: An edit, or, without fields, the marker of a durable edit.
    seq:
      - id: frame
        type: esker_recordio::frame
      - id: body
        type: edit
        size: frame.len_stored
  edit:
    seq:
      - id: fields
        type: field
        repeat: eos
  field:
    seq:
      - id: tag_code
        type: esker_varint
      - id: content
        type:
          switch-on: tag
          cases:
            'tag::next_file': esker_varint
            'tag::next_run': esker_varint
            'tag::wal_from': esker_varint
            'tag::wal_newest': esker_varint
            'tag::flushed': esker_varint
            'tag::durable': esker_varint
            'tag::database': esker_varint
            'tag::counts': rows(2)
            'tag::table_leaves': esker_varint
            'tag::table_joins': table
            'tag::table_adopted': adopted
            'tag::adopted_commit': numbered_rows
            'tag::blob_file_joins': esker_varint::several(2)
            'tag::blob_file_leaves': esker_varint
            'tag::references': rows(3)
            'tag::unresolved': esker_varint
            'tag::overcounts': rows(3)
            'tag::expiring': esker_varint::several(3)
            'tag::changed_counts': rows(2)
            'tag::feed': esker_varint::several(2)
            'tag::feed_point': esker_varint::several(3)
            'tag::feed_tables': numbered_rows
            'tag::feed_retention': esker_varint::several(2)
            _: unknown
    instances:
      tag:
        value: tag_code.value
        enum: tag
  unknown:
    seq:
      - id: refused
        doc: The length of an unknown field is unknown.
        type: u1
        valid:
          expr: false
  rows:
    params:
      - id: columns
        type: u4
    seq:
      - id: num
        type: esker_varint
      - id: rows
        type: esker_varint::several(columns)
        repeat: expr
        repeat-expr: num.value
  numbered_rows:
    seq:
      - id: seqno
        type: esker_varint
      - id: content
        type: rows(2)
  adopted:
    seq:
      - id: seqno
        type: esker_varint
      - id: table
        type: table
  table:
    seq:
      - id: file
        type: esker_varint
      - id: level
        type: u1
      - id: run
        type: esker_varint
      - id: len_file
        type: esker_varint
      - id: counts
        doc: |
          Entries, distinct keys, tombstones, range tombstones, bytes of keys, bytes of values, smallest and
          largest sequence number.
        type: esker_varint::several(8)
      - id: first_key
        type: esker_string
      - id: is_end_included
        type: u1
      - id: end_key
        type: esker_string
      - id: fingerprint
        type: esker_varint
enums:
  tag:
    1: next_file
    2: next_run
    3: wal_from
    4: wal_newest
    5: flushed
    6: durable
    7: database
    8: counts
    9: table_leaves
    10: table_joins
    11: table_adopted
    12: adopted_commit
    20: blob_file_joins
    21: blob_file_leaves
    22: references
    23: unresolved
    24: overcounts
    25: expiring
    26: changed_counts
    30: feed
    31: feed_point
    32: feed_tables
    33: feed_retention
