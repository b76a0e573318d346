meta:
  id: esker_varint
  title: Unsigned LEB128 number
  endian: le
doc: |
  Seven bits per byte, lowest first; all bytes but the last have the highest bit set. At most 10 bytes. Esker
  refuses forms that are not the shortest.
seq:
  - id: groups
    type: u1
    repeat: until
    repeat-until: _ < 128
instances:
  len:
    value: groups.size
  low:
    doc: Groups 0 to 3, without shifts, which have 32 bits in some languages.
    value: >-
      groups[0] % 128
      + (len > 1 ? groups[1] % 128 * 128 : 0)
      + (len > 2 ? groups[2] % 128 * 16384 : 0)
      + (len > 3 ? groups[3] % 128 * 2097152 : 0)
  high:
    doc: Groups 4 to 9.
    value: >-
      (len > 4 ? groups[4] % 128 : 0)
      + (len > 5 ? groups[5] % 128 * 128 : 0)
      + (len > 6 ? groups[6] % 128 * 16384 : 0)
      + (len > 7 ? groups[7] % 128 * 2097152 : 0)
      + (len > 8 ? groups[8] % 128 * 268435456 : 0)
      + (len > 9 ? groups[9] % 128 * 34359738368 : 0)
  value:
    value: low + high * 268435456
types:
  several:
    params:
      - id: num
        type: u4
    seq:
      - id: numbers
        type: esker_varint
        repeat: expr
        repeat-expr: num
