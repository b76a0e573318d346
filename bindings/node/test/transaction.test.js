'use strict'

const test = require('node:test')
const assert = require('node:assert/strict')
const { setTimeout: sleep } = require('node:timers/promises')
const { open } = require('./common')

const AS_TEXT = { keys: 'utf8', values: 'json' }

test('transact runs again after conflicts, and loses no update', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map', AS_TEXT)
  let runs = 0
  await Promise.all(Array.from({ length: 100 }, () => db.transact(async (tx) => {
    runs++
    const n = await tx.get(map, 'n') ?? 0
    tx.put(map, 'n', n + 1)
  })))
  assert.equal(map.getSync('n'), 100)
  assert.ok(runs > 100, 'there were conflicts')
  await assert.rejects(db.transact(async (tx) => {
    tx.put(map, 'n', 0)
    await map.put('n', 1)
    await tx.get(map, 'n')
  }, { attempts: 2 }), { code: 'ESKER_CONFLICT' })
  await assert.rejects(db.transact((tx) => {
    tx.put(map, 'n', 0)
    throw new RangeError('no')
  }), RangeError)
  assert.equal(map.getSync('n'), 1)
})

test('a transaction sees its writes, and others do not', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map', AS_TEXT)
  await map.putMany([['a', 1], ['b', 2], ['c', 3]])
  for (const isolation of ['serializable', 'snapshot', 'exclusive']) {
    const tx = await db.begin({ isolation, durability: 'none' })
    tx.put(map, 'd', 4)
    tx.delete(map, 'a')
    const point = tx.savepoint()
    tx.deleteRange(map, { gte: 'b', lt: 'c' })
    tx.put(map, 'e', 5, { ttl: 60000 })
    assert.deepEqual(await tx.keys(map).toArray(), ['c', 'd', 'e'])
    assert.deepEqual([...tx.keyspace(map).keys({ reverse: true })], ['e', 'd', 'c'])
    tx.rollbackTo(point)
    assert.deepEqual([tx.getSync(map, 'b'), await tx.get(map, 'e'), await tx.count(map)], [2, undefined, 3])
    assert.equal(await tx.remove(map, 'd'), 4)
    assert.deepEqual(await tx.compareAndSwap(map, 'b', 2, 7), { swapped: true, old: 2 })
    assert.deepEqual(await tx.popLast(map), ['c', 3])
    assert.deepEqual(await tx.getMany(map, ['a', 'b']), [undefined, 7])
    assert.equal(await map.count(), 3)
    assert.throws(() => tx.rollbackTo(9), { code: 'ESKER_INVALID' })
    tx.rollback()
    assert.throws(() => tx.put(map, 'a', 1), { code: 'ESKER_INVALID' })
    await assert.rejects(tx.commit(), { code: 'ESKER_INVALID' })
  }
  assert.deepEqual(await map.values().toArray(), [1, 2, 3])
})

test('an exclusive transaction has no conflicts, and other writes wait for it', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map', AS_TEXT)
  await map.put('n', 0)
  const tx = await db.begin({ isolation: 'exclusive' })
  let passed = 0
  // More of each kind than any pool has threads for reads.
  const others = []
  for (let i = 0; i < 20; i++) {
    others.push(map.put(`put ${i}`, i), map.remove('n'), map.compareAndSwap('x', undefined, i),
      db.transact((other) => other.put(map, `transact ${i}`, i)),
      db.transact((other) => other.put(map, `exclusive ${i}`, i), { isolation: 'exclusive' }))
  }
  for (const other of others) other.then(() => passed++)
  assert.throws(() => db.keyspace('new'), { code: 'ESKER_INVALID' })
  await sleep(50)
  tx.put(map, 'n', await tx.get(map, 'n') + 1)
  assert.equal(await tx.count(map), 1)
  assert.equal(passed, 0)
  await tx.commit()
  await Promise.all(others)
  assert.equal(await map.count(), 61)
  db.keyspace('new')
})

test('locks: one waits for the other, and a cycle is broken', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map', AS_TEXT)
  await Promise.all(Array.from({ length: 10 }, () => db.transact(async (tx) => {
    await tx.lock(map, 'n')
    tx.put(map, 'n', (await tx.get(map, 'n') ?? 0) + 1)
  })))
  assert.equal(map.getSync('n'), 10)
  const [a, b] = await Promise.all([db.begin(), db.begin()])
  await a.lock(map, 'a')
  await b.lock(map, 'b')
  const waits = a.lock(map, 'b')
  assert.throws(() => a.put(map, 'x', 1), { code: 'ESKER_INVALID' })
  await assert.rejects(b.lock(map, 'a'), { code: 'ESKER_DEADLOCK' })
  b.rollback()
  await waits
  a.put(map, 'x', 1)
  await a.commit()
  assert.equal(map.getSync('x'), 1)
})

test('a failed commit of a batch keeps its writes', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map', AS_TEXT)
  const other = db.keyspace('other', AS_TEXT)
  const batch = db.batch().put(map, 'a', 1).put(other, 'b', 2)
  await db.dropKeyspace('other')
  await assert.rejects(batch.commit(), { code: 'ESKER_KEYSPACE_NOT_FOUND' })
  await assert.rejects(batch.commit(), { code: 'ESKER_KEYSPACE_NOT_FOUND' })
  assert.equal(await map.count(), 0)
})
