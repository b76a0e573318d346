'use strict'

const { setTimeout: sleep } = require('node:timers/promises')
const { codec } = require('./codec')
const { ANY, checkInteger, checkOptions, checkType, closed, invalid } = require('./error')
const { Feed } = require('./feed')
const { Keyspace } = require('./keyspace')
const { call, calls, native, soon } = require('./native')
const { Batch, Snapshot, Transaction } = require('./transaction')

const OPEN = {
  memory: 'number',
  durability: 'string',
  isolation: 'string',
  createIfMissing: 'boolean',
  errorIfExists: 'boolean',
  readOnly: 'boolean',
  compression: 'boolean',
  blobsFrom: 'number',
  lockTimeout: 'number',
  feed: ANY,
  keyFile: 'string',
  multithreading: 'boolean'
}
const FEED = { bytes: 'number', age: 'number' }
const KEYSPACE = { keys: ANY, values: ANY, create: 'boolean' }
const NEW = {
  keys: ANY,
  values: ANY,
  mergeOperator: 'string',
  defaultTtl: 'number',
  blobsFrom: 'number',
  bytesMax: 'number',
  history: 'number',
  counting: 'boolean'
}
// The greatest number that native code takes for a count.
const MOST = 2 ** 32 - 1
const TRANSACT = { isolation: 'string', durability: 'string', attempts: 'number' }
// How long a transaction that has conflicted waits for others that have. They may wait for it.
const PATIENCE = 250

function openOptions (options) {
  const { feed, ...rest } = checkOptions(options, OPEN, 'Db.open')
  if (feed === undefined || feed === false) return rest
  const { bytes = 64 * 2 ** 20, age } = checkOptions(feed === true ? {} : feed, FEED, 'feed')
  return { ...rest, feedBytes: bytes, feedAge: age }
}

function pathOf (path) {
  if (path instanceof URL) path = require('node:url').fileURLToPath(path)
  if (typeof path !== 'string' || path === '' || path.includes('\0')) {
    throw invalid('the path of a database is a string that is not empty')
  }
  return path
}

/** An open database. */
class Db {
  #native
  #state = 'open'
  #underWay = 0
  #onIdle = null
  #closing = null
  #turn = Promise.resolve()
  /** @internal Weak references to open transactions. */
  transactions = new Set()

  /** @internal */
  constructor (opened) {
    if (!(opened instanceof native.NativeDb)) throw invalid('a database is opened by Db.open')
    this.#native = opened
  }

  /** Opens the database in a directory, or creates it. */
  static async open (path, options) {
    const [directory, all] = [pathOf(path), openOptions(options)]
    return new Db(await call(null, (number) => native.open(calls, number, directory, all)))
  }

  static openSync (path, options) {
    return new Db(native.openSync(calls, pathOf(path), openOptions(options)))
  }

  /** Opens a database in memory, which ends when it is closed. */
  static memory (options) {
    return new Db(native.openSync(calls, null, openOptions(options)))
  }

  get path () {
    return this.#native.path
  }

  get isOpen () {
    return this.#state === 'open'
  }

  /** @internal */
  checkOpen () {
    if (this.#state !== 'open') throw closed()
  }

  /** @internal A call begins. */
  callBegins () {
    this.checkOpen()
    this.#underWay++
  }

  /** @internal A call has ended. */
  callEnds () {
    this.#underWay--
    if (this.#underWay === 0) this.#onIdle?.()
  }

  #call (start) {
    return call(this, start)
  }

  /** Waits for calls that are under way, makes all commits durable, and closes the database. */
  close () {
    return (this.#closing ??= this.#close())
  }

  async #close () {
    this.#state = 'closing'
    // Calls under way may wait for them.
    for (const transaction of this.transactions) transaction.deref()?.end()
    if (this.#underWay > 0) await new Promise((resolve) => { this.#onIdle = resolve })
    try {
      await call(null, (number) => this.#native.close(number))
    } finally {
      this.#state = 'closed'
    }
  }

  [Symbol.asyncDispose] () {
    return this.close()
  }

  /** Returns the keyspace of a name. A missing one is created, by a commit that this call waits for. */
  keyspace (name, options) {
    const { keys, values, create = true } = checkOptions(options, KEYSPACE, 'keyspace')
    this.checkOpen()
    return new Keyspace(this, this.#native.keyspace(nameOf(name), create), codec(keys), codec(values))
  }

  /** Creates a keyspace with options that are stored in the database. */
  async createKeyspace (name, options) {
    const { keys, values, ...rest } = checkOptions(options, NEW, 'createKeyspace')
    if (rest.history !== undefined) checkInteger(rest.history, 0, 'history', MOST)
    await this.#call((number) => this.#native.create(number, nameOf(name), rest))
    return this.keyspace(name, { keys, values, create: false })
  }

  async dropKeyspace (name) {
    return this.#call((number) => this.#native.dropKeyspace(number, nameOf(name)))
  }

  async renameKeyspace (from, to) {
    return this.#call((number) => this.#native.rename(number, nameOf(from), nameOf(to)))
  }

  /** The names of all keyspaces, in order. */
  keyspaces () {
    this.checkOpen()
    return this.#native.names()
  }

  snapshot () {
    this.checkOpen()
    return new Snapshot(this, this.#native.snapshot())
  }

  batch () {
    this.checkOpen()
    return new Batch(this, this.#native.batch())
  }

  /** Begins a transaction: end it by commit or rollback. */
  async begin (options) {
    const { isolation, durability } = checkOptions(options, TRANSACT, 'begin')
    if (this.transactions.size % 64 === 63) this.#forget()
    const begun = await soon(this, (number) => this.#native.begin(number, isolation, durability))
    const transaction = new Transaction(this, begun)
    if (this.isOpen) return transaction
    // It began while the database was being closed.
    transaction.end()
    throw closed()
  }

  /** Drops references to transactions that were collected. */
  #forget () {
    for (const transaction of this.transactions) {
      if (transaction.deref() === undefined) this.transactions.delete(transaction)
    }
  }

  /**
   * Runs a function in a transaction and commits it. After a conflict or deadlock the function runs again in
   * a new transaction.
   */
  async transact (body, options) {
    const { attempts = Infinity } = checkOptions(options, TRANSACT, 'transact')
    checkType(body, 'function', 'the body of a transaction')
    if (attempts !== Infinity) checkInteger(attempts, 1, 'attempts')
    let release = null
    try {
      for (let attempt = 1; ; attempt++) {
        const transaction = await this.begin(options)
        try {
          const result = await body(transaction)
          await transaction.commit()
          return result
        } catch (error) {
          transaction.rollback()
          const again = error?.code === 'ESKER_CONFLICT' || error?.code === 'ESKER_DEADLOCK'
          if (!again || attempt >= attempts) throw error
        }
        if (release === null) release = await this.#retry()
        else await sleep(Math.random() * Math.min(100, 2 ** attempt))
      }
    } finally {
      release?.()
    }
  }

  /** Waits until no other transaction of this handle runs again, for a while. */
  async #retry () {
    const before = this.#turn
    let release
    this.#turn = new Promise((resolve) => { release = resolve })
    const timer = new AbortController()
    const late = sleep(PATIENCE, null, { signal: timer.signal }).catch(() => {})
    await Promise.race([before, late])
    timer.abort()
    return release
  }

  /** Every commit after a commit, as it happens. */
  feed (options) {
    this.checkOpen()
    return new Feed(this, this.#native, options)
  }

  /** The number of the newest commit that readers see. */
  get newestCommit () {
    this.checkOpen()
    return this.#native.newest
  }

  /** Makes all earlier commits durable. */
  async sync () {
    return this.#call((number) => this.#native.sync(number))
  }

  /** Writes what is in memory to tables. */
  async flush () {
    return this.#call((number) => this.#native.flush(number))
  }

  /** Compacts the whole database into one run without garbage. */
  async compact () {
    return this.#call((number) => this.#native.compact(number))
  }

  /** Reads all files and checks them. Rejects if there is damage. */
  async check () {
    return this.#call((number) => this.#native.check(number))
  }

  /** Copies the database as of now into a new directory. */
  async checkpoint (directory) {
    const path = pathOf(directory)
    return this.#call((number) => this.#native.checkpoint(number, path))
  }

  /** Figures of the database by name: sizes, counts, times in seconds. */
  stats () {
    this.checkOpen()
    return this.#native.stats()
  }

  /** Whether all is well, and what is wrong. */
  health () {
    const [status, error] = this.#native.health()
    return error === '' ? { status } : { status, error }
  }
}

function nameOf (name) {
  if (typeof name !== 'string' || !name.isWellFormed()) throw invalid('the name of a keyspace is a string')
  return name
}

module.exports = { Db }
