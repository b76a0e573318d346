'use strict'

// EskerLevel: the interface of abstract-level over one keyspace of a database.

const { mkdir } = require('node:fs/promises')
const { AbstractLevel, AbstractIterator, AbstractChainedBatch, AbstractSnapshot } = require('abstract-level')
const ModuleError = require('module-error')
const { Chunk, FIRST, shape } = require('./chunk')
const { copy, joined } = require('./codec')
const { Db } = require('./db')
const { atOnce, call, calls, native, soon, WRITE } = require('./native')
const { ABSENT, UNKNOWN, asBytes, find, room, write } = require('./room')
const { Stage } = require('./stage')

// Options of Db.open that the constructor passes on.
const OPEN = ['createIfMissing', 'errorIfExists', 'memory', 'durability', 'readOnly', 'compression',
  'blobsFrom', 'lockTimeout', 'feed', 'keyFile', 'multithreading']
// Entries and bytes of a call for a single `next()`, after those in memory.
const NEXT = [1000, 65536]
const BYTES_MAX = 4 << 20

const CODES = { ESKER_LOCKED: 'LEVEL_LOCKED', ESKER_CORRUPT: 'LEVEL_CORRUPTION', ESKER_IO: 'LEVEL_IO_ERROR' }

function pick (options, names) {
  const given = names.filter((name) => options[name] !== undefined)
  return Object.fromEntries(given.map((name) => [name, options[name]]))
}

// Keys and values are bytes or strings here: abstract-level has encoded them.
const raw = asBytes

/** The ends of a range in the order of native calls. The wider of two wins, as elsewhere in Level. */
function ends ({ gt, gte, lt, lte }) {
  const [start, end] = [gte ?? gt, lte ?? lt].map((key) => key === undefined ? key : raw(key))
  return [start, gte !== undefined, end, lte !== undefined]
}

function decoder (encoding) {
  switch (encoding) {
    case 'utf8': return (bytes, from, to) => bytes.utf8Slice(from, to)
    default: return copy
  }
}

function decoded (found, encoding) {
  return found === undefined || encoding !== 'utf8' ? found : found.utf8Slice(0, found.length)
}

class EskerLevel extends AbstractLevel {
  #location
  #options
  #db = null
  #keyspace = null
  #durable = null

  constructor (location, options) {
    if (typeof location !== 'string' || location === '') {
      throw new TypeError("The first argument 'location' must be a non-empty string")
    }
    super({
      encodings: { buffer: true, utf8: true, view: true },
      has: true,
      getSync: true,
      createIfMissing: true,
      errorIfExists: true,
      implicitSnapshots: true,
      explicitSnapshots: true,
      additionalMethods: { approximateSize: true, compactRange: true },
      signals: { iterators: true }
    }, options)
    this.#location = location
    this.#options = options ?? {}
  }

  get location () {
    return this.#location
  }

  /** The database below, while this is open. */
  get db () {
    return this.#db
  }

  async _open (options) {
    // As in LevelDB: a write waits for the operating system, with `sync: true` for the disk.
    const pass = { durability: 'buffered', ...pick(options, OPEN) }
    try {
      if (options.createIfMissing) await mkdir(this.#location, { recursive: true })
      this.#db = await Db.open(this.#location, pass)
      const name = this.#options.keyspace ?? 'default'
      this.#keyspace = this.#db.keyspace(name)
    } catch (error) {
      await this.#db?.close()
      const code = CODES[error.code]
      if (error.code === 'ESKER_NO_DATABASE') {
        throw new Error(`${this.#location} does not exist, and createIfMissing is false`, { cause: error })
      }
      throw code === undefined ? error : new ModuleError(error.message, { code, cause: error })
    }
  }

  async _close () {
    await this.#db.close()
    this.#db = this.#keyspace = this.#durable = null
  }

  /** @internal The keyspace, or what a snapshot sees of it. */
  reads (snapshot) {
    return snapshot === undefined ? this.#keyspace.native : snapshot.view
  }

  /** @internal */
  call (start) {
    return call(this.#db, start)
  }

  #soon = (start) => soon(this.#db, start)

  async _get (key, options) {
    const found = this.#find(key, options)
    if (found !== UNKNOWN) return atOnce(found === ABSENT ? undefined : found)
    const [reads, bytes] = [this.reads(options.snapshot), raw(key)]
    return decoded(await this.#soon((number) => reads.get(number, bytes)), options.valueEncoding)
  }

  _getSync (key, options) {
    const found = this.#find(key, options)
    if (found !== UNKNOWN) return found === ABSENT ? undefined : found
    return decoded(this.reads(options.snapshot).getSync(raw(key)), options.valueEncoding)
  }

  #find (key, { snapshot, valueEncoding }) {
    return snapshot === undefined ? find(this.#keyspace.native, key, decoder(valueEncoding)) : UNKNOWN
  }

  async _getMany (keys, options) {
    const reads = this.reads(options.snapshot)
    const [all, lengths] = joined(keys.map(raw))
    const found = await this.#soon((number) => reads.many(number, all, lengths))
    const decode = decoder(options.valueEncoding)
    return new Chunk(found).all((bytes, start, middle, end) =>
      end === -1 ? undefined : decode(bytes, middle, end))
  }

  async _has (key, options) {
    return (await this._hasMany([key], options))[0]
  }

  async _hasMany (keys, options) {
    const reads = this.reads(options.snapshot)
    const [all, lengths] = joined(keys.map(raw))
    return this.#soon((number) => reads.hasMany(number, all, lengths))
  }

  #with (options) {
    if (options.sync !== true) return this.#keyspace
    return (this.#durable ??= this.#keyspace.with({ durability: 'sync' }))
  }

  async _put (key, value, options) {
    await write(this.#with(options).native, this.#soon, WRITE.put, key, value)
  }

  async _del (key, options) {
    await write(this.#with(options).native, this.#soon, WRITE.delete, key, '')
  }

  async _batch (operations, options) {
    const batch = this.#db.batch()
    const stage = new Stage(batch.native.view(this.#keyspace.native))
    for (const { type, key, value } of operations) {
      if (type === 'put') stage.put(key, value)
      else stage.delete(key)
    }
    stage.end()
    await this.commit(batch, options)
  }

  /** @internal */
  async commit (batch, options) {
    await batch.commit(options.sync === true ? { durability: 'sync' } : {})
  }

  _chainedBatch () {
    return new ChainedBatch(this, this.#db.batch(), this.#keyspace.native)
  }

  async _clear (options) {
    const range = ends(options)
    let left = options.limit >= 0 ? options.limit : Infinity
    if (options.snapshot === undefined && left === Infinity) {
      return this.call((number) => this.#keyspace.native.deleteRange(number, ...range))
    }
    const [start, hasStart, end, hasEnd] = range
    const bits = shape({ reverse: options.reverse, keys: true }, hasStart, hasEnd)
    const walk = this.reads(options.snapshot).iter(room, bits, 0, start, end)
    try {
      for (let isLast = false; left > 0 && !isLast;) {
        const count = Math.min(left, NEXT[0])
        const chunk = new Chunk(await this.call((number) => walk.fill(number, count, NEXT[1])))
        isLast = chunk.isLast
        left -= chunk.left
        const batch = this.#db.batch()
        const to = batch.native.view(this.#keyspace.native)
        chunk.all((bytes, start, middle) => to.stage(WRITE.delete, bytes.subarray(start, middle)))
        await batch.commit()
      }
    } finally {
      walk.close()
    }
  }

  _iterator (options) {
    return new Iterator(this, options, this.reads(options.snapshot))
  }

  _snapshot (options) {
    const snapshot = this.#db.snapshot()
    return new Snapshot(options, snapshot, snapshot.keyspace(this.#keyspace).native)
  }

  async approximateSize (start, end, options) {
    return this.#inRange('approximateSize', start, end, options)
  }

  async compactRange (start, end, options) {
    return this.#inRange('compactRange', start, end, options)
  }

  async #inRange (method, start, end, options) {
    if (start === undefined || end === undefined) {
      throw new TypeError("The arguments 'start' and 'end' are required")
    }
    if (this.status === 'opening') return this.deferAsync(() => this.#inRange(method, start, end, options))
    if (this.status !== 'open') {
      const message = `Database is not open: cannot call ${method}()`
      throw new ModuleError(message, { code: 'LEVEL_DATABASE_NOT_OPEN' })
    }
    const encoding = this.keyEncoding(options?.keyEncoding)
    const range = [raw(encoding.encode(start)), true, raw(encoding.encode(end)), false]
    return this.call((number) => this.#keyspace.native[method](number, ...range))
  }

  /** Removes a database that is not open, with all that is in its directory. */
  static async destroy (location) {
    if (typeof location !== 'string' || location === '') {
      throw new TypeError("The first argument 'location' must be a non-empty string")
    }
    try {
      await call(null, (number) => native.destroy(calls, number, location))
    } catch (error) {
      if (error.code === 'ESKER_LOCKED') {
        throw new ModuleError(error.message, { code: 'LEVEL_LOCKED', cause: error })
      }
      if (error.code !== 'ESKER_NO_DATABASE') throw error
    }
  }
}

class Snapshot extends AbstractSnapshot {
  #snapshot

  constructor (options, snapshot, view) {
    super(options)
    this.#snapshot = snapshot
    this.view = view
    this.isClosed = false
  }

  async _close () {
    this.isClosed = true
    this.#snapshot.close()
  }
}

class ChainedBatch extends AbstractChainedBatch {
  #batch
  #keyspace
  #to

  constructor (level, batch, keyspace) {
    super(level)
    this.#keyspace = keyspace
    this.#use(batch)
  }

  #use (batch) {
    this.#batch = batch
    this.#to = batch.native.view(this.#keyspace)
  }

  _put (key, value) {
    this.#to.stage(WRITE.put, raw(key), raw(value))
  }

  _del (key) {
    this.#to.stage(WRITE.delete, raw(key))
  }

  _clear () {
    this.#batch.close()
    this.#use(this.db.db.batch())
  }

  async _write (options) {
    await this.db.commit(this.#batch, options)
  }

  async _close () {
    this.#batch.close()
  }
}

class Iterator extends AbstractIterator {
  #native
  #chunk = null
  #first
  #decode
  #signal
  #abort = null

  constructor (level, options, reads) {
    const { keys, values, limit } = options
    const [start, hasStart, end, hasEnd] = ends(options)
    // Without a native walk after the end of the snapshot: reads are refused by the class above.
    const native = options.snapshot?.isClosed
      ? null
      : reads.iter(room, shape(options, hasStart, hasEnd), 0, start, end)
    super(level, options)
    this.#native = native
    this.#first = limit > 0 ? Math.min(limit, FIRST) : FIRST
    const [key, value] = [decoder(options.keyEncoding), decoder(options.valueEncoding)]
    this.#decode = (bytes, start, middle, end) => [
      keys ? key(bytes, start, middle) : undefined,
      values ? value(bytes, middle, end) : undefined
    ]
    this.#signal = options.signal ?? null
  }

  /** Takes the next entries: the first ones in memory, if they are there. */
  async #fill (count, size) {
    const first = this.#first
    this.#first = 0
    // With a signal a call can be aborted after it was made.
    if (first > 0 && this.#signal === null && this.#native.fillIn(room, first)) {
      this.#chunk = Chunk.ofRoom()
      return
    }
    const filled = this.db.call((number) => this.#native.fill(number, count, size))
    this.#chunk = new Chunk(this.#signal === null ? await filled : await this.#unlessAborted(filled))
  }

  async #unlessAborted (filled) {
    const aborted = new Promise((resolve, reject) => {
      this.#abort = () => reject(new AbortError())
      this.#signal.addEventListener('abort', this.#abort, { once: true })
    })
    try {
      return await Promise.race([filled, aborted])
    } finally {
      this.#signal.removeEventListener('abort', this.#abort)
    }
  }

  async _next () {
    while (!(this.#chunk?.left > 0)) {
      if (this.#chunk?.isLast) return atOnce(undefined)
      await this.#fill(...(this.#first > 0 ? [this.#first, NEXT[1]] : NEXT))
    }
    return this.#chunk.take(this.#decode)
  }

  async _nextv (size) {
    const entries = []
    for (;;) {
      while (this.#chunk?.left > 0 && entries.length < size) entries.push(this.#chunk.take(this.#decode))
      if (entries.length > 0 || this.#chunk?.isLast) return atOnce(entries)
      await this.#fill(size, BYTES_MAX)
    }
  }

  _seek (target) {
    this.#chunk = null
    this.#first = FIRST
    this.#native?.seek(raw(target))
  }

  async _close () {
    this.#chunk = null
    this.#native?.close()
  }
}

class AbortError extends ModuleError {
  constructor () {
    super('Operation has been aborted', { code: 'LEVEL_ABORTED' })
  }

  get name () {
    return 'AbortError'
  }
}

exports.EskerLevel = EskerLevel
