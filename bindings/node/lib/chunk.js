'use strict'

const MISSING = 0xffffffff

/** Steps through the entries of a chunk of native code (src/chunk.rs). */
class Chunk {
  constructor ({ bytes, count, end, isLast }) {
    this.bytes = bytes
    this.isLast = isLast
    this.left = count
    this.lengths = end
    this.at = 0
  }

  /** Calls `make(bytes, start, middle, end)` for the next entry. */
  take (make) {
    const keyLength = this.bytes.readUInt32LE(this.lengths)
    const valueLength = this.bytes.readUInt32LE(this.lengths + 4)
    const middle = this.at + keyLength
    const end = valueLength === MISSING ? -1 : middle + valueLength
    const entry = make(this.bytes, this.at, middle, end)
    this.at = end === -1 ? middle : end
    this.lengths += 8
    this.left--
    return entry
  }

  /** All entries. */
  all (make) {
    const entries = []
    while (this.left > 0) entries.push(this.take(make))
    return entries
  }
}

module.exports = { Chunk }
