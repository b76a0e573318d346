'use strict'

const { Chunk } = require('./chunk')
const { bytes, codec, ends, joined, rawer, slicer } = require('./codec')
const { ANY, checkArray, checkOptions, checkType, invalid } = require('./error')
const { atOnce, call, soon, WRITE } = require('./native')
const { Range } = require('./range')
const { ABSENT, UNKNOWN, asBytes, find, write } = require('./room')
const { Stage } = require('./stage')

const AS = { keys: ANY, values: ANY }
const PUT = { ttl: 'number' }
const WITH = { durability: 'string', ttl: 'number' }

/** The reads of a keyspace: its newest state, a snapshot's, or a transaction's. */
class Reads {
  #native
  #keyCodec
  #valueCodec

  /** @internal */
  constructor (db, native, keyCodec, valueCodec) {
    this.db = db
    this.#native = native
    this.#keyCodec = keyCodec
    this.#valueCodec = valueCodec
  }

  /** @internal */
  get native () {
    return this.#native
  }

  /** @internal */
  get keyCodec () {
    return this.#keyCodec
  }

  /** @internal */
  get valueCodec () {
    return this.#valueCodec
  }

  get name () {
    return this.native.name
  }

  get id () {
    return this.native.id
  }

  /** @internal */
  key (key) {
    return this.keyCodec.encode(key, 'a key')
  }

  /** @internal */
  value (value) {
    return this.valueCodec.encode(value, 'a value')
  }

  /** @internal */
  decoded (found) {
    return found === undefined ? undefined : this.valueCodec.decode(found)
  }

  /** @internal Starts a call that may be done at once. */
  soon (start) {
    return soon(this.db, start)
  }

  /** @internal Starts a call that waits. */
  call (start) {
    return call(this.db, start)
  }

  getSync (key) {
    this.db.checkOpen()
    return this.decoded(this.native.getSync(this.key(key)))
  }

  async get (key) {
    const encoded = this.key(key)
    return this.decoded(await this.soon((number) => this.native.get(number, encoded)))
  }

  async getMany (keys) {
    const [all, lengths] = joined(checkArray(keys, 'the keys').map((key) => this.key(key)))
    const found = await this.soon((number) => this.native.many(number, all, lengths))
    const slice = slicer(this.valueCodec)
    return new Chunk(found).all((chunk, start, middle, end) =>
      end === -1 ? undefined : slice(chunk, middle, end))
  }

  hasSync (key) {
    this.db.checkOpen()
    return this.native.hasSync(this.key(key))
  }

  async has (key) {
    return (await this.hasMany([key]))[0]
  }

  async hasMany (keys) {
    const [all, lengths] = joined(checkArray(keys, 'the keys').map((key) => this.key(key)))
    return this.soon((number) => this.native.hasMany(number, all, lengths))
  }

  async ttl (key) {
    const encoded = this.key(key)
    return this.soon((number) => this.native.ttl(number, encoded))
  }

  async count () {
    return this.call((number) => this.native.count(number))
  }

  range (options) {
    return new Range(this, options)
  }

  keys (options) {
    return new Range(this, { ...options, values: false })
  }

  values (options) {
    return new Range(this, { ...options, keys: false })
  }

  [Symbol.asyncIterator] () {
    return this.range()[Symbol.asyncIterator]()
  }
}

/** What reads and writes one key: as a commit of its own, or in a transaction. */
class Updates extends Reads {
  async remove (key) {
    const encoded = this.key(key)
    return this.decoded(await this.call((number) => this.native.remove(number, encoded)))
  }

  async compareAndSwap (key, expected, value) {
    const encoded = this.key(key)
    const bytesOf = (side) => side === undefined ? undefined : this.value(side)
    const [before, after] = [bytesOf(expected), bytesOf(value)]
    const swap = await this.call((number) => this.native.swap(number, encoded, before, after))
    return { swapped: swap.swapped, old: this.decoded(swap.old) }
  }

  async add (key, by = 1n) {
    const encoded = this.key(key)
    if (typeof by !== 'bigint' && !Number.isSafeInteger(by)) {
      throw invalid(`${String(by)} is no bigint, and no integer that a number holds`)
    }
    const sum = BigInt(by)
    return this.call((number) => this.native.add(number, encoded, sum))
  }

  async expire (key, ttl) {
    const encoded = this.key(key)
    checkType(ttl, 'number', 'the lifetime')
    return this.call((number) => this.native.expire(number, encoded, ttl === Infinity ? undefined : ttl))
  }

  async popFirst () {
    return this.#pop(false)
  }

  async popLast () {
    return this.#pop(true)
  }

  async #pop (last) {
    const entry = await this.call((number) => this.native.pop(number, last))
    return entry && [this.keyCodec.decode(entry[0]), this.valueCodec.decode(entry[1])]
  }
}

/** A named, ordered map of the database. */
class Keyspace extends Updates {
  // Reads in memory and writes pass through the room.
  #rawKey
  #rawValue
  #slice
  #durability

  /** @internal `durability` is that of `with`. */
  constructor (db, native, keyCodec, valueCodec, durability) {
    super(db, native, keyCodec, valueCodec)
    this.#durability = durability
    this.#rawKey = rawer(keyCodec)
    this.#rawValue = rawer(valueCodec)
    this.#slice = slicer(valueCodec)
  }

  /** Reads a key in memory. `{ cached: false }`: a file would have to be read. */
  getCached (key) {
    this.db.checkOpen()
    const raw = this.#rawKey(key, 'a key')
    let found = find(this.native, raw, this.#slice)
    if (found === UNKNOWN) {
      // The value may be larger than the room.
      found = this.native.getCached(asBytes(raw))
      if (found === null) return { cached: false }
      found = found === undefined ? ABSENT : this.decoded(found)
    }
    return { cached: true, value: found === ABSENT ? undefined : found }
  }

  getSync (key) {
    this.db.checkOpen()
    const raw = this.#rawKey(key, 'a key')
    const found = find(this.native, raw, this.#slice)
    if (found === UNKNOWN) return this.decoded(this.native.getSync(asBytes(raw)))
    return found === ABSENT ? undefined : found
  }

  async get (key) {
    this.db.checkOpen()
    const raw = this.#rawKey(key, 'a key')
    const found = find(this.native, raw, this.#slice)
    if (found !== UNKNOWN) return atOnce(found === ABSENT ? undefined : found)
    const encoded = asBytes(raw)
    return this.decoded(await this.soon((number) => this.native.get(number, encoded)))
  }

  async put (key, value, options) {
    if (options === undefined) {
      return this.#write(WRITE.put, this.#rawKey(key, 'a key'), this.#rawValue(value, 'a value'))
    }
    const { ttl } = checkOptions(options, PUT, 'put')
    const [encoded, data] = [this.key(key), this.value(value)]
    return this.soon((number) => this.native.write(number, WRITE.put, encoded, data, ttl))
  }

  async delete (key) {
    return this.#write(WRITE.delete, this.#rawKey(key, 'a key'), '')
  }

  async merge (key, operand) {
    return this.#write(WRITE.merge, this.#rawKey(key, 'a key'), bytes(operand, 'an operand'))
  }

  #write (what, key, value) {
    return write(this.native, (start) => soon(this.db, start), what, key, value)
  }

  async putMany (entries) {
    if (typeof entries?.[Symbol.iterator] !== 'function') throw invalid('the entries cannot be iterated')
    const batch = this.db.batch()
    const stage = new Stage(batch.native.view(this.native))
    for (const entry of entries) {
      const [key, value] = checkArray(entry, 'the key and the value of an entry')
      const [rawKey, rawValue] = [this.#rawKey(key, 'a key'), this.#rawValue(value, 'a value')]
      stage.put(rawKey, rawValue)
    }
    stage.end()
    return batch.commit({ durability: this.#durability })
  }

  async deleteRange (range) {
    if (range === undefined) throw invalid('deleteRange needs a range: clear() removes everything')
    const all = ends(checkRange(range), this.keyCodec)
    return this.call((number) => this.native.deleteRange(number, ...all))
  }

  async clear () {
    return this.call((number) => this.native.deleteRange(number, undefined, true, undefined, false))
  }

  async approximateSize (range = {}) {
    const all = ends(checkRange(range), this.keyCodec)
    return this.call((number) => this.native.approximateSize(number, ...all))
  }

  async compactRange (range = {}) {
    const all = ends(checkRange(range), this.keyCodec)
    return this.call((number) => this.native.compactRange(number, ...all))
  }

  async setMergeOperator (name) {
    checkType(name, 'string', 'the name of an operator')
    return this.call((number) => this.native.setMergeOperator(number, name))
  }

  /** A handle of the same keyspace with a durability and a lifetime of its own. */
  with (options) {
    const { durability, ttl } = checkOptions(options, WITH, 'with')
    const native = this.native.with(durability, ttl)
    return new Keyspace(this.db, native, this.keyCodec, this.valueCodec, durability ?? this.#durability)
  }

  /** A handle of the same keyspace with other encodings. */
  as (encodings) {
    const { keys = this.keyCodec, values = this.valueCodec } = checkOptions(encodings, AS, 'as')
    return new Keyspace(this.db, this.native, codec(keys), codec(values), this.#durability)
  }
}

const ENDS = { gt: ANY, gte: ANY, lt: ANY, lte: ANY, prefix: ANY }

function checkRange (range) {
  return checkOptions(range, ENDS, 'a range of keys')
}

/** A keyspace in a transaction. */
class TransactionKeyspace extends Updates {
  put (key, value, options) {
    const { ttl } = checkOptions(options, PUT, 'put')
    this.db.checkOpen()
    this.native.stage(WRITE.put, this.key(key), this.value(value), ttl)
  }

  delete (key) {
    this.db.checkOpen()
    this.native.stage(WRITE.delete, this.key(key))
  }

  merge (key, operand) {
    this.db.checkOpen()
    this.native.stage(WRITE.merge, this.key(key), bytes(operand, 'an operand'))
  }

  deleteRange (range) {
    if (range === undefined) throw invalid('deleteRange needs a range')
    this.db.checkOpen()
    this.native.stageDeleteRange(...ends(checkRange(range), this.keyCodec))
  }
}

module.exports = { Reads, Keyspace, TransactionKeyspace }
