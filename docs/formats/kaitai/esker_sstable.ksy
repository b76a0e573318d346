meta:
  id: esker_sstable
  title: Esker table
  file-extension: sst
  endian: le
  bit-endian: le
  imports:
    - esker_string
    - esker_varint
doc: |
  Footer, index, properties, filter, range tombstones, and all data blocks that are not compressed, entry by
  entry. Checksums (CRC-32C) are not checked. The payload of a compressed block, decompressed, has the type
  `block`.
doc-ref: docs/formats/sstable.md
instances:
  footer:
    pos: _io.size - 80
    type: footer
  data:
    pos: 0
    size: footer.len_data
    type: data
  range_tombstones:
    pos: footer.len_data
    size: footer.len_range_tombstones
    type: part(0)
    if: footer.len_range_tombstones > 0
  filter:
    pos: footer.len_data + footer.len_range_tombstones
    size: footer.len_filter
    type: part(1)
    if: footer.len_filter > 0
  index_pages:
    pos: footer.len_data + footer.len_range_tombstones + footer.len_filter
    size: footer.len_index_pages
    type: index_pages
    if: footer.len_index_pages > 0
  index:
    doc: Of the data blocks; with index pages, of the pages.
    pos: footer.len_data + footer.len_range_tombstones + footer.len_filter + footer.len_index_pages
    size: footer.len_index
    type: part(2)
  properties:
    pos: >-
      footer.len_data + footer.len_range_tombstones + footer.len_filter + footer.len_index_pages
      + footer.len_index
    size: footer.len_properties
    type: part(3)
types:
  footer:
    seq:
      - id: len_data
        type: u8
      - id: len_range_tombstones
        type: u8
      - id: len_filter
        type: u8
      - id: len_index
        type: u8
      - id: len_properties
        type: u8
      - id: salt
        type: u4
      - id: newest_commit
        type: u8
      - id: has_expiry
        type: b1
      - id: has_blobs
        type: b1
      - id: has_unresolved
        type: b1
      - id: unknown_features
        type: b29
        valid: 0
      - id: len_index_pages
        type: u8
      - id: version
        type: u4
        valid: 1
      - id: crc
        type: u4
      - id: magic
        contents: eskerSST
  part:
    doc: Every part but the footer ends with its codec and a checksum. Only data blocks are compressed.
    params:
      - id: kind
        type: u1
    seq:
      - id: content
        size: _io.size - 5
        type:
          switch-on: kind
          cases:
            0: range_tombstones
            1: filter
            2: index
            3: properties
      - id: codec
        type: u1
        valid: 0
      - id: crc
        type: u4
  data:
    doc: All blocks, or with index pages the blocks of each page.
    seq:
      - id: blocks
        type: stored_block
        size: _root.index.content.as<index>.blocks[_index].len
        repeat: expr
        repeat-expr: '_root.footer.len_index_pages > 0 ? 0 : _root.index.content.as<index>.num_blocks.value'
      - id: pages
        type: blocks_of_page(_index)
        size: _root.index.content.as<index>.paging.block_bytes[_index].value
        repeat: expr
        repeat-expr: '_root.footer.len_index_pages > 0 ? _root.index.content.as<index>.num_blocks.value : 0'
  blocks_of_page:
    params:
      - id: page
        type: u4
    seq:
      - id: blocks
        type: stored_block
        size: _root.index_pages.pages[page].content.as<index>.blocks[_index].len
        repeat: expr
        repeat-expr: _root.index_pages.pages[page].content.as<index>.num_blocks.value
  index_pages:
    seq:
      - id: pages
        type: part(2)
        size: _root.index.content.as<index>.blocks[_index].len
        repeat: expr
        repeat-expr: _root.index.content.as<index>.num_blocks.value
  stored_block:
    seq:
      - id: content
        size: _io.size - 5
        type:
          switch-on: codec
          cases:
            'codec::none': block
            _: compressed
    instances:
      codec:
        pos: _io.size - 5
        type: u1
        enum: codec
      crc:
        pos: _io.size - 4
        type: u4
  compressed:
    seq:
      - id: len_raw
        type: u4
      - id: payload
        size-eos: true
  block:
    seq:
      - id: num_entries
        type: u4
      - id: has_fixed_keys
        type: b1
      - id: has_fixed_values
        type: b1
      - id: is_all_visible
        type: b1
      - id: is_split
        type: b1
      - id: is_wide
        type: b1
      - id: is_headed
        type: b1
      - id: reserved
        type: b2
        valid: 0
      - id: len_prefix_low
        type: u2
      - id: len_prefix_high
        type: u1
      - id: len_rest
        type: u4
      - id: len_value
        type: u4
      - id: heads
        doc: The first 4 bytes of each key after the prefix, as a big-endian number stored little-endian.
        type: u4
        repeat: expr
        repeat-expr: num_entries
      - id: trailers
        type: trailer
        repeat: expr
        repeat-expr: 'is_all_visible ? 0 : num_entries'
      - id: first
        doc: Offsets of entries, or, if split, of rests.
        type: number(is_wide)
        repeat: expr
        repeat-expr: 'has_fixed_keys and (is_split or has_fixed_values) ? 0 : num_entries + 1'
      - id: second
        doc: Lengths of rests, or, if split, offsets of values.
        type: number(is_wide)
        repeat: expr
        repeat-expr: >-
          is_split ? (has_fixed_values ? 0 : num_entries + 1)
          : (has_fixed_keys or has_fixed_values ? 0 : num_entries)
      - id: prefix
        size: len_prefix_low + len_prefix_high * 65536
      - id: area
        type: area
        size-eos: true
  number:
    params:
      - id: is_wide
        type: bool
    seq:
      - id: wide
        type: u4
        if: is_wide
      - id: narrow
        type: u2
        if: not is_wide
    instances:
      value:
        value: 'is_wide ? wide : narrow'
  trailer:
    seq:
      - id: kind
        type: u1
      - id: seqno_low
        type: u4
      - id: seqno_middle
        type: u2
      - id: seqno_high
        type: u1
    instances:
      seqno:
        value: seqno_low + (seqno_middle + seqno_high * 65536) * 4294967296
  area:
    instances:
      entries:
        pos: 0
        type: entry(_index)
        repeat: expr
        repeat-expr: _parent.num_entries
  entry:
    doc: The key is the block's prefix, with `is_headed` the head, and the rest.
    params:
      - id: number
        type: u4
    instances:
      block:
        value: _parent._parent
      start:
        doc: Of the rest.
        value: >-
          block.has_fixed_keys and (block.is_split or block.has_fixed_values)
          ? number * (block.is_split ? block.len_rest : block.len_rest + block.len_value)
          : block.first[number].value
      end:
        doc: Of the entry, or, if split, of the rest.
        value: >-
          block.has_fixed_keys and (block.is_split or block.has_fixed_values)
          ? start + (block.is_split ? block.len_rest : block.len_rest + block.len_value)
          : block.first[number + 1].value
      len_rest:
        value: >-
          block.has_fixed_keys ? block.len_rest
          : block.is_split ? end - start
          : block.has_fixed_values ? end - start - block.len_value
          : block.second[number].value
      rests:
        doc: Length of all rests of a split block.
        value: >-
          block.has_fixed_keys ? block.num_entries * block.len_rest
          : block.first[block.num_entries].value
      value_start:
        value: >-
          block.is_split
          ? rests + (block.has_fixed_values ? number * block.len_value : block.second[number].value)
          : start + len_rest
      value_end:
        value: >-
          block.is_split
          ? rests + (block.has_fixed_values ? (number + 1) * block.len_value : block.second[number + 1].value)
          : end
      rest:
        pos: start
        size: len_rest
      value:
        pos: value_start
        size: value_end - value_start
  range_tombstones:
    seq:
      - id: num
        type: esker_varint
      - id: fragments
        type: fragment
        repeat: expr
        repeat-expr: num.value
  fragment:
    seq:
      - id: start
        type: esker_string
      - id: end
        type: esker_string
      - id: num
        type: esker_varint
      - id: seqnos
        type: esker_varint::several(num.value)
  filter:
    seq:
      - id: lines
        size: 64
        repeat: expr
        repeat-expr: (_io.size - 1) / 64
      - id: num_probes
        type: u1
  index:
    seq:
      - id: prefix
        type: esker_string
      - id: num_blocks
        type: esker_varint
      - id: blocks
        type: index_entry
        repeat: expr
        repeat-expr: num_blocks.value
      - id: paging
        type: paging(num_blocks.value)
        if: not _io.eof
  paging:
    doc: The rest of the root of index pages.
    params:
      - id: num_pages
        type: u8
    seq:
      - id: num_blocks
        type: esker_varint
      - id: page_blocks
        type: esker_varint
      - id: block_bytes
        type: esker_varint
        repeat: expr
        repeat-expr: num_pages
  index_entry:
    seq:
      - id: len_and_flag
        type: esker_varint
      - id: separator
        type: esker_string
    instances:
      len:
        value: len_and_flag.value / 2
  properties:
    seq:
      - id: counts
        doc: |
          Entries, distinct keys, tombstones, range tombstones, bytes of keys, bytes of values, smallest and
          largest sequence number.
        type: esker_varint::several(8)
      - id: num_blocks
        type: esker_varint
      - id: codec
        type: u1
        enum: codec
      - id: first_key
        type: esker_string
      - id: is_end_included
        type: u1
      - id: end_key
        type: esker_string
      - id: fingerprint
        type: u4
      - id: more
        doc: Unresolved and expiring entries and references to blob files, if there are any.
        size-eos: true
enums:
  codec:
    0: none
    1: gzip
    2: snappy
    3: lz4
    4: zstd
