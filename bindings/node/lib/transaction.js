'use strict'

// Snapshots, batches and transactions. Their methods are those of a keyspace, with the keyspace first.

const { call, soon } = require('./native')
const { ANY, checkInteger, checkOptions, invalid } = require('./error')
const { Keyspace, Reads, TransactionKeyspace } = require('./keyspace')

const COMMIT = { durability: 'string' }
const LOCK = { shared: ANY }

class Views {
  #native
  #views = new Map()

  /** @internal */
  constructor (db, native) {
    this.db = db
    this.#native = native
  }

  /** @internal */
  get native () {
    return this.#native
  }

  /** @internal The keyspace as it is seen here. */
  view (keyspace, Class) {
    let view = this.#views.get(keyspace)
    if (view === undefined) {
      if (!(keyspace instanceof Keyspace)) throw invalid('the first argument is no keyspace')
      const native = this.#native.view(keyspace.native)
      view = new Class(this.db, native, keyspace.keyCodec, keyspace.valueCodec)
      this.#views.set(keyspace, view)
    }
    return view
  }

  /** @internal */
  end () {
    this.#native.rollback()
    this.#views.clear()
  }
}

/** A state of all keyspaces. */
class Snapshot extends Views {
  keyspace (keyspace) {
    return this.view(keyspace, Reads)
  }

  /** The newest commit that the snapshot has. */
  get seqno () {
    return this.native.seqno()
  }

  close () {
    this.end()
  }

  [Symbol.dispose] () {
    this.end()
  }
}

/** Writes that are committed together. */
class Batch extends Views {
  #ks (keyspace) {
    return this.view(keyspace, TransactionKeyspace)
  }

  put (keyspace, key, value, options) {
    this.#ks(keyspace).put(key, value, options)
    return this
  }

  delete (keyspace, key) {
    this.#ks(keyspace).delete(key)
    return this
  }

  merge (keyspace, key, operand) {
    this.#ks(keyspace).merge(key, operand)
    return this
  }

  deleteRange (keyspace, range) {
    this.#ks(keyspace).deleteRange(range)
    return this
  }

  async commit (options) {
    const { durability } = checkOptions(options, COMMIT, 'commit')
    return soon(this.db, (number) => this.native.commit(number, durability))
  }

  close () {
    this.end()
  }

  [Symbol.dispose] () {
    this.end()
  }
}

/** Reads and writes that are committed together. */
class Transaction extends Views {
  // The database ends open transactions when it is closed, but does not keep forgotten ones alive.
  #self = new WeakRef(this)

  /** @internal */
  constructor (db, native) {
    super(db, native)
    db.transactions.add(this.#self)
  }

  /** @internal */
  end () {
    this.db.transactions.delete(this.#self)
    super.end()
  }

  keyspace (keyspace) {
    return this.view(keyspace, TransactionKeyspace)
  }

  get seqno () {
    return this.native.seqno()
  }

  async commit () {
    const seqno = await soon(this.db, (number) => this.native.commit(number))
    this.db.transactions.delete(this.#self)
    return seqno
  }

  rollback () {
    this.end()
  }

  /** Marks a state of the transaction. */
  savepoint () {
    this.db.checkOpen()
    return this.native.savepoint()
  }

  /** Undoes all writes since a savepoint, which stays. */
  rollbackTo (savepoint) {
    this.db.checkOpen()
    this.native.rollbackTo(checkInteger(savepoint, 1, 'the savepoint', 2 ** 32 - 1))
  }

  /** Locks a key until the transaction ends. */
  async lock (keyspace, key, options) {
    const { shared = false } = checkOptions(options, LOCK, 'lock')
    if (!(keyspace instanceof Keyspace)) throw invalid('the first argument is no keyspace')
    const encoded = keyspace.key(key)
    return call(this.db, (number) => this.native.lock(number, keyspace.native, encoded, Boolean(shared)))
  }

  [Symbol.dispose] () {
    this.end()
  }
}

// `snapshot.get(keyspace, key)` is `snapshot.keyspace(keyspace).get(key)`, and so on.
const READS = ['get', 'getSync', 'getMany', 'has', 'hasSync', 'hasMany', 'ttl', 'count', 'range', 'keys',
  'values']
const UPDATES = ['remove', 'compareAndSwap', 'add', 'expire', 'popFirst', 'popLast', 'put', 'delete', 'merge',
  'deleteRange']

function shorten (Class, names) {
  for (const name of names) {
    Object.defineProperty(Class.prototype, name, {
      configurable: true,
      writable: true,
      value (keyspace, ...rest) {
        return this.keyspace(keyspace)[name](...rest)
      }
    })
  }
}

shorten(Snapshot, READS)
shorten(Transaction, [...READS, ...UPDATES])

module.exports = { Snapshot, Batch, Transaction }
