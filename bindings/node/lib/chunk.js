'use strict'

const { room } = require('./room')

const MISSING = 0xffffffff
// The first words of the room, as src/chunk.rs fills them.
const header = new Uint32Array(room.buffer, 0, 3)
const HEADER = 12
// Entries of the first chunk of a walk: many walks end early.
const FIRST = 32

/** Steps through the entries of a chunk of native code (src/chunk.rs). */
class Chunk {
  constructor ({ bytes, count, end, isLast }, at = 0) {
    this.bytes = bytes
    this.isLast = isLast
    this.left = count
    this.lengths = end
    this.at = at
  }

  /** The chunk that native code has put into the room. Null: it has not. */
  static ofRoom () {
    const [count, end, isLast] = header
    if (count === MISSING) return null
    const bytes = Buffer.allocUnsafe(end + 8 * count)
    room.copy(bytes, 0, 0, end + 8 * count)
    return new Chunk({ bytes, count, end, isLast: isLast === 1 }, HEADER)
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

/** The bits of a walk, as src/iter.rs reads them: what it returns, in which order, which ends are in it. */
function shape ({ reverse, keys, values }, hasStart, hasEnd, isShort) {
  return (reverse ? 1 : 0) | (keys ? 2 : 0) | (values ? 4 : 0) | (hasStart ? 8 : 0) | (hasEnd ? 16 : 0) |
    (isShort ? 32 : 0)
}

module.exports = { Chunk, FIRST, shape }
