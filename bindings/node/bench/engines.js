'use strict'

// The engines, each with the calls that its users make. Keys are strings, values are buffers.

const path = require('node:path')

async function esker (dir) {
  const { Db } = require('..')
  const db = await Db.open(dir, { durability: 'buffered' })
  const map = db.keyspace('map', { keys: 'utf8' })
  const durable = map.with({ durability: 'sync' })
  return {
    load: (entries) => map.putMany(entries),
    getSync: (key) => map.getSync(key),
    get: (key) => map.get(key),
    getMany: (keys) => map.getMany(keys),
    put: (key, value) => map.put(key, value),
    putDurable: (key, value) => durable.put(key, value),
    async putManyDurable (entries) {
      await Promise.all(entries.map(([key, value]) => durable.put(key, value)))
    },
    batchDurable: (entries) => durable.putMany(entries),
    async scan () {
      let n = 0
      for await (const [, value] of map.range()) n += value.length
      return n
    },
    async scanShort (from) {
      let n = 0
      for await (const [, value] of map.range({ gte: from, limit: 10 })) n += value.length
      return n
    },
    increment: (key) => db.transact(async (t) => {
      const n = t.getSync(map, key).readUInt32LE()
      const next = Buffer.alloc(100)
      next.writeUInt32LE((n + 1) >>> 0)
      t.put(map, key, next)
    }),
    close: () => db.close()
  }
}

async function classicLevel (dir) {
  const { ClassicLevel } = require('classic-level')
  const db = new ClassicLevel(dir, { valueEncoding: 'buffer', cacheSize: 256 << 20 })
  await db.open()
  return level(db)
}

async function eskerLevel (dir) {
  const { EskerLevel } = require('../level')
  const db = new EskerLevel(dir, { valueEncoding: 'buffer' })
  await db.open()
  return level(db)
}

function level (db) {
  const put = (key, value) => ({ type: 'put', key, value })
  return {
    load: (entries) => db.batch(entries.map(([key, value]) => put(key, value))),
    getSync: (key) => db.getSync(key),
    get: (key) => db.get(key),
    getMany: (keys) => db.getMany(keys),
    put: (key, value) => db.put(key, value),
    putDurable: (key, value) => db.put(key, value, { sync: true }),
    async putManyDurable (entries) {
      await Promise.all(entries.map(([key, value]) => db.put(key, value, { sync: true })))
    },
    batchDurable: (entries) => db.batch(entries.map(([key, value]) => put(key, value)), { sync: true }),
    async scan () {
      let n = 0
      for await (const [, value] of db.iterator()) n += value.length
      return n
    },
    async scanShort (from) {
      let n = 0
      for await (const [, value] of db.iterator({ gte: from, limit: 10 })) n += value.length
      return n
    },
    increment: null,
    close: () => db.close()
  }
}

async function lmdb (dir) {
  const { open } = require('lmdb')
  const db = open({ path: dir, encoding: 'binary', mapSize: 4 << 30 })
  return {
    load: (entries) => db.transaction(() => { for (const [key, value] of entries) db.put(key, value) }),
    getSync: (key) => db.get(key),
    get: async (key) => db.get(key),
    getMany: (keys) => db.getMany(keys),
    put: (key, value) => db.put(key, value),
    async putDurable (key, value) {
      await db.put(key, value)
      await db.flushed
    },
    async putManyDurable (entries) {
      await Promise.all(entries.map(([key, value]) => db.put(key, value)))
      await db.flushed
    },
    async batchDurable (entries) {
      await db.transaction(() => { for (const [key, value] of entries) db.put(key, value) })
      await db.flushed
    },
    scan () {
      let n = 0
      for (const { value } of db.getRange()) n += value.length
      return n
    },
    scanShort (from) {
      let n = 0
      for (const { value } of db.getRange({ start: from, limit: 10 })) n += value.length
      return n
    },
    increment: (key) => db.transaction(() => {
      const next = Buffer.alloc(100)
      next.writeUInt32LE((db.get(key).readUInt32LE() + 1) >>> 0)
      db.put(key, next)
    }),
    close: () => db.close()
  }
}

async function sqlite (dir) {
  const Database = require('better-sqlite3')
  require('node:fs').mkdirSync(dir, { recursive: true })
  const db = new Database(path.join(dir, 'file'))
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = NORMAL')
  db.pragma('cache_size = -262144')
  db.exec('CREATE TABLE map (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID')
  const put = db.prepare('INSERT OR REPLACE INTO map VALUES (?, ?)')
  const get = db.prepare('SELECT value FROM map WHERE key = ?').pluck()
  const all = db.prepare('SELECT value FROM map ORDER BY key').pluck()
  const some = db.prepare('SELECT value FROM map WHERE key >= ? ORDER BY key LIMIT 10').pluck()
  const putAll = db.transaction((entries) => { for (const [key, value] of entries) put.run(key, value) })
  const increment = db.transaction((key) => {
    const next = Buffer.alloc(100)
    next.writeUInt32LE((get.get(key).readUInt32LE() + 1) >>> 0)
    put.run(key, next)
  })
  const durably = (body) => {
    db.pragma('synchronous = FULL')
    body()
    db.pragma('synchronous = NORMAL')
  }
  return {
    load: putAll,
    getSync: (key) => get.get(key),
    get: async (key) => get.get(key),
    getMany: (keys) => keys.map((key) => get.get(key)),
    put: async (key, value) => put.run(key, value),
    putDurable: async (key, value) => durably(() => put.run(key, value)),
    putManyDurable: async (entries) => durably(() => entries.forEach((entry) => put.run(...entry))),
    batchDurable: async (entries) => durably(() => putAll(entries)),
    scan () {
      let n = 0
      for (const value of all.iterate()) n += value.length
      return n
    },
    scanShort (from) {
      let n = 0
      for (const value of some.iterate(from)) n += value.length
      return n
    },
    increment: async (key) => increment(key),
    close: () => db.close()
  }
}

module.exports = {
  esker,
  'esker-level': eskerLevel,
  'classic-level': classicLevel,
  lmdb,
  'better-sqlite3': sqlite
}
