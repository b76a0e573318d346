'use strict'

// Walks over a range: entries arrive in chunks, and the next chunk is read while one is stepped through.

const { Chunk } = require('./chunk')
const { ends, slicer } = require('./codec')
const { call } = require('./native')
const { checkOptions, invalid } = require('./error')

const OPTIONS = new Set(['gt', 'gte', 'lt', 'lte', 'prefix', 'reverse', 'limit', 'keys', 'values'])
// The first chunk is small: many walks end early.
const FIRST = [32, 8192]
const NEXT = [1000, 65536]
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
  #limit
  #make

  constructor (source, options) {
    options = checkOptions(options, OPTIONS, 'a range')
    const { keys = true, values = true, reverse = false } = options
    if (!keys && !values) throw invalid('a range has keys, values or both')
    this.#source = source
    this.#ends = ends(options, source.keyCodec)
    this.#shape = { reverse: Boolean(reverse), keys: Boolean(keys), values: Boolean(values) }
    this.#limit = limitOf(options.limit)
    this.#make = maker(source.keyCodec, source.valueCodec, keys, values)
  }

  #begin () {
    this.#source.db.checkOpen()
    return this.#source.native.iter(this.#shape, ...this.#ends)
  }

  [Symbol.asyncIterator] () {
    return new AsyncWalk(this.#source.db, this.#begin(), this.#limit, this.#make)
  }

  * [Symbol.iterator] () {
    const native = this.#begin()
    let limit = this.#limit
    let size = FIRST
    try {
      while (limit > 0) {
        this.#source.db.checkOpen()
        const chunk = new Chunk(native.fillSync(Math.min(limit, size[0]), size[1]))
        while (chunk.left > 0) {
          limit--
          yield chunk.take(this.#make)
        }
        if (chunk.isLast) return
        size = NEXT
      }
    } finally {
      native.close()
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
  #chunk = null
  #next = null
  #size = FIRST

  constructor (db, native, limit, make) {
    this.#db = db
    this.#native = native
    this.#limit = limit
    this.#make = make
  }

  [Symbol.asyncIterator] () {
    return this
  }

  #fill () {
    const size = this.#size
    this.#size = NEXT
    const count = Math.min(this.#limit - (this.#chunk?.left ?? 0), size[0])
    return call(this.#db, (number) => this.#native.fill(number, count, size[1]))
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
        return DONE
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
