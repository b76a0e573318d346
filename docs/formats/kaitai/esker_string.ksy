meta:
  id: esker_string
  title: Byte string after its length
  imports:
    - esker_varint
seq:
  - id: len
    type: esker_varint
  - id: data
    size: len.value
