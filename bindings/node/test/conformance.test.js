'use strict'

// Replays the calls of bindings/conformance.jsonl and compares the replies: each binding does.

const test = require('node:test')
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')
const { directory, Db } = require('./common')
const { tuple } = require('..')

const FILE = path.join(__dirname, '../../conformance.jsonl')
const OPTIONS = { feed: { bytes: 64 << 20, age: 3600000 }, durability: 'none' }
const COMPARED = new Set(['put', 'merge', 'delete', 'delete_range'])

const bytes = (hex) => hex === null || hex === undefined ? undefined : Buffer.from(hex, 'hex')
const hex = (data) => data === undefined ? null : Buffer.from(data).toString('hex')

/** A field of a tuple from its form in the file. */
function field (json) {
  if (json === null) return null
  const [[kind, value]] = Object.entries(json)
  switch (kind) {
    case 'bytes': return bytes(value)
    case 'text': case 'bool': return value
    case 'int': return BigInt(value)
    case 'float': return new tuple.Float(bytes(value))
    case 'double': return new tuple.Double(bytes(value))
    case 'uuid': return new tuple.Uuid(bytes(value))
    case 'tuple': return value.map(field)
    default: throw new Error(`${kind} is no kind of field`)
  }
}

/** A field in the form of the file. */
function json (field) {
  switch (true) {
    case field === null: return null
    case typeof field === 'string': return { text: field }
    case typeof field === 'boolean': return { bool: field }
    case typeof field === 'number' || typeof field === 'bigint': return { int: String(field) }
    case field instanceof tuple.Float: return { float: hex(field.bytes) }
    case field instanceof tuple.Double: return { double: hex(field.bytes) }
    case field instanceof tuple.Uuid: return { uuid: hex(field.bytes) }
    case Array.isArray(field): return { tuple: field.map(json) }
    default: return { bytes: hex(field) }
  }
}

class Replayer {
  constructor (dir) {
    this.dir = dir
    this.copies = 0
  }

  async open () {
    this.db = await Db.open(this.dir, OPTIONS)
    this.keyspaces = new Map()
    this.txns = new Map()
    this.savepoints = new Map()
  }

  ks (name) {
    if (!this.keyspaces.has(name)) this.keyspaces.set(name, this.db.keyspace(name, { create: false }))
    return this.keyspaces.get(name)
  }

  /** Calls a method of a keyspace: in the transaction of the call, if it has one. */
  async on (call, method, ...args) {
    const keyspace = this.ks(call.keyspace)
    if (call.txn === undefined) return keyspace[method](...args)
    const txn = this.txns.get(call.txn)
    // Snapshots have no writes, and batches no reads.
    if (txn[method] === undefined) throw Object.assign(new Error(method), { code: 'ESKER_INVALID' })
    return txn[method](keyspace, ...args)
  }

  async scan (call) {
    const range = { reverse: call.reverse ?? false, limit: call.limit ?? Infinity }
    if (call.prefix !== undefined) range.prefix = bytes(call.prefix)
    else Object.assign(range, { gte: bytes(call.start), lt: bytes(call.end) })
    const found = await (await this.on(call, 'range', range)).toArray()
    return found.map((entry) => entry.map(hex))
  }

  async feed () {
    await this.db.sync()
    const commits = []
    for await (const { changes } of this.db.feed({ after: this.mark, wait: false })) {
      const compared = changes.filter(({ change }) => COMPARED.has(change)).map((made) => {
        const change = { change: made.change, keyspace: made.keyspace, key: hex(made.key) }
        const value = made.change === 'delete_range' ? made.end : made.value
        return { ...change, value: hex(value) }
      })
      if (compared.length > 0) commits.push(compared)
    }
    return commits
  }

  async ttl (call) {
    const left = await this.on(call, 'ttl', bytes(call.key))
    return left === undefined ? 'missing' : left === Infinity ? 'none' : 'some'
  }

  async begin ({ txn, kind }) {
    const make = {
      read_only: () => this.db.snapshot(),
      write_only: () => this.db.batch()
    }[kind] ?? (() => this.db.begin({ isolation: kind, durability: 'none' }))
    this.txns.set(txn, await make())
  }

  async commit ({ txn }) {
    const open = this.txns.get(txn)
    if (open.commit === undefined) open.close()
    else await open.commit()
  }

  async reopen (dir) {
    await this.db.close()
    this.dir = dir
    await this.open()
  }

  async checkpoint () {
    const copy = `${this.dir}-${++this.copies}`
    await this.db.checkpoint(copy)
    await this.reopen(copy)
  }

  pack (call) {
    const fields = call.fields.map(field)
    if (call.is !== undefined) assert.deepEqual(tuple.unpack(bytes(call.is)).map(json), call.fields)
    return hex(tuple.pack(fields))
  }

  async perform (call) {
    const [key, value] = [bytes(call.key), bytes(call.value)]
    switch (call.do) {
      case 'keyspace': return void this.keyspaces.set(call.keyspace, this.db.keyspace(call.keyspace))
      case 'rename': {
        await this.db.renameKeyspace(call.from, call.to)
        this.keyspaces.set(call.to, this.ks(call.from))
        return void this.keyspaces.delete(call.from)
      }
      case 'drop': return this.db.dropKeyspace(call.keyspace)
      case 'names': return this.db.keyspaces()
      case 'operator': return this.ks(call.keyspace).setMergeOperator(call.operator)
      case 'put': {
        const ttl = call.ttl_ms ?? undefined
        return this.on(call, 'put', key, value, ttl === undefined ? undefined : { ttl })
      }
      case 'get': return hex(await this.on(call, 'get', key))
      case 'contains': return this.on(call, 'has', key)
      case 'many': return (await this.on(call, 'getMany', call.keys.map(bytes))).map(hex)
      case 'delete': return this.on(call, 'delete', key)
      case 'remove': return hex(await this.on(call, 'remove', key))
      case 'delete_range':
        return this.on(call, 'deleteRange', { gte: bytes(call.start), lt: bytes(call.end) })
      case 'delete_prefix': return this.on(call, 'deleteRange', { prefix: bytes(call.prefix) })
      case 'merge': return this.on(call, 'merge', key, bytes(call.operand))
      case 'swap': return (await this.on(call, 'compareAndSwap', key, bytes(call.expected), value)).swapped
      case 'add': return String(await this.on(call, 'add', key, BigInt(call.by)))
      case 'ttl': return this.ttl(call)
      case 'scan': return this.scan(call)
      case 'len': return this.on(call, 'count')
      case 'begin': return this.begin(call)
      case 'savepoint':
        return void this.savepoints.set(`${call.txn} ${call.savepoint}`, this.txns.get(call.txn).savepoint())
      case 'rollback_to':
        return this.txns.get(call.txn).rollbackTo(this.savepoints.get(`${call.txn} ${call.savepoint}`))
      case 'commit': return this.commit(call)
      case 'rollback': {
        const txn = this.txns.get(call.txn)
        return txn.rollback === undefined ? txn.close() : txn.rollback()
      }
      case 'sleep': return sleep(call.ms)
      case 'reopen': return this.reopen(this.dir)
      case 'checkpoint': return this.checkpoint()
      case 'mark': return void (this.mark = this.db.newestCommit)
      case 'feed': return this.feed()
      case 'pack': return this.pack(call)
      case 'unpack': return tuple.unpack(key).map(json)
      default: throw new Error(`there is no call ${call.do}`)
    }
  }
}

/** Changes without a value say so in one way. */
function normal (reply, call) {
  if (call.do !== 'feed') return reply
  return reply.map((changes) => changes.map((change) => ({ ...change, value: change.value ?? null })))
}

test('each call has the reply of the file', async (t) => {
  const lines = readFileSync(FILE, 'utf8').split('\n').filter((line) => line !== '')
  const replayer = new Replayer(directory(t, () => replayer.db?.close()))
  await replayer.open()
  for (const [at, line] of lines.entries()) {
    const call = JSON.parse(line)
    const where = `line ${at + 1}: ${line}`
    if (call.error !== undefined) {
      const code = `ESKER_${call.error.toUpperCase()}`
      await assert.rejects(async () => replayer.perform(call), { code }, where)
      continue
    }
    const reply = await replayer.perform(call).catch((error) => {
      throw new Error(`${where}: ${error.message}`, { cause: error })
    })
    if (call.is !== undefined) assert.deepEqual(reply, normal(call.is, call), where)
  }
  await replayer.db.check()
  assert.ok(lines.length > 1000)
})
