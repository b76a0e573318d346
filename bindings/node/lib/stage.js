'use strict'

// Stages many puts and removals by a few calls: their keys and values pass to native code one after the
// other.

const { asBytes, place } = require('./room')
const { WRITE } = require('./native')

const MISSING = 0xffffffff
const BYTES = 1 << 16
const WRITES = 512
// Memory that no stage uses. Several stages may be filled at a time: encodings and iterators are code of the
// program.
const unused = []

class Stage {
  #native
  #memory
  #count = 0
  #end = 0

  /** `native` is the view of a batch or transaction. */
  constructor (native) {
    this.#native = native
    this.#memory = unused.pop() ??
      { bytes: Buffer.allocUnsafeSlow(BYTES), lengths: new Uint32Array(2 * WRITES) }
  }

  /** Adds a put of strings or bytes. */
  put (key, value) {
    const { bytes, lengths } = this.#memory
    const middle = place(key, this.#end, bytes)
    const end = middle === -1 ? -1 : place(value, middle, bytes)
    if (end === -1) return this.#again(key, value)
    lengths[2 * this.#count] = middle - this.#end
    lengths[2 * this.#count + 1] = end - middle
    this.#added(end)
  }

  /** Adds a removal. */
  delete (key) {
    const { bytes, lengths } = this.#memory
    const end = place(key, this.#end, bytes)
    if (end === -1) return this.#again(key, undefined)
    lengths[2 * this.#count] = end - this.#end
    lengths[2 * this.#count + 1] = MISSING
    this.#added(end)
  }

  #added (end) {
    this.#end = end
    this.#count++
    if (this.#count === WRITES) this.flush()
  }

  /** Adds a write for which there was too little space. */
  #again (key, value) {
    const isEmpty = this.#end === 0
    this.flush()
    if (!isEmpty) return value === undefined ? this.delete(key) : this.put(key, value)
    if (value === undefined) this.#native.stage(WRITE.delete, asBytes(key))
    else this.#native.stage(WRITE.put, asBytes(key), asBytes(value))
  }

  /** Hands all writes over. */
  flush () {
    const { bytes, lengths } = this.#memory
    const count = this.#count
    this.#count = this.#end = 0
    if (count > 0) this.#native.stageMany(bytes, lengths.subarray(0, 2 * count))
  }

  /** Hands all writes over. The stage is not used any more. */
  end () {
    this.flush()
    unused.push(this.#memory)
    this.#memory = null
  }
}

module.exports = { Stage }
