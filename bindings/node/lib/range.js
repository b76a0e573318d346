'use strict'

// Walks over a range: entries arrive in chunks. The first one is read in memory, if it is there. While a
// later one is stepped through, the next one is read by another thread.

const { Chunk, FIRST, shape } = require('./chunk')
const { ends, slicer } = require('./codec')
const { atOnce, call } = require('./native')
const { room } = require('./room')
const { ANY, checkOptions, invalid } = require('./error')

const OPTIONS = {
  gt: ANY, gte: ANY, lt: ANY, lte: ANY, prefix: ANY, reverse: ANY, limit: ANY, keys: ANY, values: ANY
}
const NEXT = [1000, 65536]
const FIRST_BYTES = 8192
const DONE = Object.freeze({ value: undefined, done: true })

function limitOf (limit = Infinity) {
  if (limit === Infinity || limit === -1) return Infinity
  if (Number.isInteger(limit) && limit >= 0) return limit
  throw invalid(`limit is ${limit}: pass an integer that is not negative`)
}

/** Makes an entry of the bytes of a chunk. */
function maker (keyCodec, valueCodec, keys, values) {
  const [key, value] = [slicer(keyCodec), slicer(valueCodec)]
  if (keys && values) {
    return (bytes, start, middle, end) => [key(bytes, start, middle), value(bytes, middle, end)]
  }
  if (keys) return (bytes, start, middle) => key(bytes, start, middle)
  return (bytes, start, middle, end) => value(bytes, middle, end)
}

/** A range of entries, keys or values. Each loop over it is a walk of its own. */
class Range {
  #source
  #ends
  #shape
  #count
  #limit
  #make

  constructor (source, options) {
    options = checkOptions(options, OPTIONS, 'a range')
    const { keys = true, values = true, reverse = false } = options
    if (!keys && !values) throw invalid('a range has keys, values or both')
    this.#source = source
    const [start, hasStart, end, hasEnd] = ends(options, source.keyCodec)
    this.#ends = [start, end]
    this.#limit = limitOf(options.limit)
    this.#count = Math.min(this.#limit, FIRST)
    this.#shape = shape({ reverse, keys, values }, hasStart, hasEnd, this.#count === this.#limit)
    this.#make = maker(source.keyCodec, source.valueCodec, keys, values)
  }

  /** Begins a walk. Returns what reads on, and the first chunk: null if it has to be read. */
  #begin () {
    this.#source.db.checkOpen()
    if (this.#limit === 0) return [null, null]
    const [start, end] = this.#ends
    const native = this.#source.native.iter(room, this.#shape, this.#count, start, end)
    return [native, Chunk.ofRoom()]
  }

  [Symbol.asyncIterator] () {
    return new AsyncWalk(this.#source.db, ...this.#begin(), this.#limit, this.#make)
  }

  * [Symbol.iterator] () {
    let [native, chunk] = this.#begin()
    let limit = this.#limit
    try {
      while (limit > 0) {
        if (chunk === null) {
          this.#source.db.checkOpen()
          chunk = new Chunk(native.fillSync(Math.min(limit, NEXT[0]), NEXT[1]))
        }
        while (chunk.left > 0) {
          limit--
          yield chunk.take(this.#make)
        }
        if (chunk.isLast) return
        chunk = null
      }
    } finally {
      native?.close()
    }
  }

  /** Reads the whole range. */
  async toArray () {
    const entries = []
    for await (const entry of this) entries.push(entry)
    return entries
  }
}

class AsyncWalk {
  #db
  #native
  #limit
  #make
  #chunk
  #next = null

  constructor (db, native, first, limit, make) {
    this.#db = db
    this.#native = native
    this.#chunk = first
    this.#limit = limit
    this.#make = make
  }

  [Symbol.asyncIterator] () {
    return this
  }

  #fill () {
    // Without a chunk the first one has to be read from files: it is small, as in memory.
    const [size, bytes] = this.#chunk === null ? [FIRST, FIRST_BYTES] : NEXT
    const count = Math.min(this.#limit - (this.#chunk?.left ?? 0), size)
    return call(this.#db, (number) => this.#native.fill(number, count, bytes))
  }

  next () {
    if (!(this.#chunk?.left > 0)) return this.#nextOfChunk()
    try {
      return Promise.resolve(this.#take())
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #take () {
    this.#limit--
    return { value: this.#chunk.take(this.#make), done: false }
  }

  async #nextOfChunk () {
    // Calls that were made before the chunk came take their entries in turn.
    while (!(this.#chunk?.left > 0)) {
      if (this.#native === null || this.#limit <= 0 || this.#chunk?.isLast) {
        this.#end()
        return atOnce(DONE)
      }
      const isFirst = this.#chunk === null
      const next = this.#next ??= this.#fill()
      const found = await next
      if (this.#next !== next) continue
      this.#next = null
      this.#chunk = new Chunk(found)
      if (!isFirst && !this.#chunk.isLast && this.#limit > this.#chunk.left && this.#db.isOpen) {
        this.#next = this.#fill()
        this.#next.catch(() => {})
      }
    }
    return this.#take()
  }

  #end () {
    const native = this.#native
    // Closing now would wait for the call that reads the next chunk.
    if (this.#next !== null) this.#next.finally(() => native?.close()).catch(() => {})
    else native?.close()
    this.#native = this.#next = null
    this.#chunk = null
  }

  async return (value) {
    this.#end()
    return { value, done: true }
  }

  async [Symbol.asyncDispose] () {
    this.#end()
  }
}

module.exports = { Range }
