'use strict'

const test = require('node:test')
const assert = require('node:assert/strict')
const { setTimeout: sleep } = require('node:timers/promises')
const { directory, open, Db } = require('./common')

test('what is written is there after the next opening', async (t) => {
  const dir = directory(t)
  {
    const db = await Db.open(dir)
    const users = db.keyspace('users', { keys: 'utf8', values: 'json' })
    assert.equal(await users.get('ann'), undefined)
    const first = await users.put('ann', { age: 7 })
    assert.ok(await users.putMany([['bob', [1]], ['cid', null]]) > first)
    assert.deepEqual(users.getCached('ann'), { cached: true, value: { age: 7 } })
    assert.deepEqual(await users.getMany(['ann', 'dan', 'cid']), [{ age: 7 }, undefined, null])
    await db.close()
  }
  const db = Db.openSync(dir)
  const users = db.keyspace('users', { create: false })
  assert.equal(users.getSync('ann').toString(), '{"age":7}')
  assert.deepEqual(await users.hasMany(['ann', 'dan']), [true, false])
  assert.equal(await users.count(), 3)
  assert.deepEqual(db.keyspaces(), ['default', 'users'])
  await db.close()
})

test('keys and values of all sizes and kinds of bytes', async (t) => {
  const map = (await open(t)).keyspace('map')
  const large = Buffer.alloc(3 << 20, 'x')
  const kinds = [['', ''], ['text \u00e9\u{1f600}', 'v'], [Buffer.from([0, 255]), large],
    [new Uint8Array([1, 2, 3]).subarray(1), new DataView(new ArrayBuffer(4))],
    [new Uint8Array(new SharedArrayBuffer(2)), Buffer.alloc(0)], ['k'.repeat(65535), 'long']]
  await Promise.all(kinds.map(([key, value]) => map.put(key, value)))
  for (const [key, value] of kinds) {
    const expected = value instanceof DataView ? Buffer.alloc(4) : Buffer.from(value)
    assert.deepEqual(map.getSync(key), expected)
    assert.deepEqual(await map.get(key), expected)
  }
  assert.equal(await map.count(), kinds.length)
  assert.equal((await map.values().toArray()).reduce((sum, value) => sum + value.length, 0), 3145737)
})

test('bad input is an error with a code, and nothing is written', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map')
  for (const key of [undefined, null, 1, {}, [1], '\ud800', new Float32Array(1)]) {
    await assert.rejects(map.put(key, 'v'), { code: 'ESKER_INVALID' })
    assert.throws(() => map.getSync(key), { code: 'ESKER_INVALID' })
  }
  await assert.rejects(map.put('k'.repeat(65536), 'v'), { code: 'ESKER_TOO_LONG' })
  await assert.rejects(map.put('k', 'v', { ttl: -1 }), { code: 'ESKER_INVALID' })
  await assert.rejects(map.put('k', 'v', { tll: 1 }), { code: 'ESKER_INVALID' })
  await assert.rejects(map.merge('k', 'v'), { code: 'ESKER_MERGE' })
  await assert.rejects(map.add('k', 2n ** 63n), { code: 'ESKER_INVALID' })
  await assert.rejects(map.add('k', 0.5), { code: 'ESKER_INVALID' })
  await assert.rejects(map.deleteRange({ gt: 'a', gte: 'b' }), { code: 'ESKER_INVALID' })
  await assert.rejects(map.deleteRange(), { code: 'ESKER_INVALID' })
  assert.throws(() => map.range({ limit: -2 }), { code: 'ESKER_INVALID' })
  assert.throws(() => map.range({ start: 'a' }), { code: 'ESKER_INVALID' })
  assert.throws(() => map.with({ durability: 'often' }), { code: 'ESKER_INVALID' })
  assert.throws(() => db.keyspace('missing', { create: false }), { code: 'ESKER_KEYSPACE_NOT_FOUND' })
  await assert.rejects(Db.open(db.path), { code: 'ESKER_LOCKED', path: /LOCK|lock/ })
  await assert.rejects(Db.open('', {}), { code: 'ESKER_INVALID' })
  await assert.rejects(Db.open(`${db.path}-2`, { memroy: 1 }), { code: 'ESKER_INVALID' })
  await assert.rejects(Db.open(`${db.path}-2`, { createIfMissing: false }), { code: 'ESKER_NO_DATABASE' })
  assert.equal(await map.count(), 0)
})

test('arguments of a wrong type are mistakes of the caller, and have no effect', async (t) => {
  const db = await open(t)
  const map = await db.createKeyspace('map', { defaultTtl: 3600000 })
  await map.put('k', 'v')
  const mistake = { name: 'TypeError', code: 'ESKER_INVALID' }
  const before = db.newestCommit
  for (const odd of ['1', true, {}, [1], null, 1n, Symbol('odd'), () => 1]) {
    const calls = [
      () => map.put('k', 'w', { ttl: odd }), () => map.expire('k', odd), () => map.with({ ttl: odd }),
      () => map.with({ durability: odd }), () => map.setMergeOperator(odd === '1' ? 1 : odd),
      () => db.createKeyspace('new', { history: odd }), () => db.createKeyspace('new', { bytesMax: odd }),
      () => db.begin({ isolation: odd }), () => db.transact(() => 1, { attempts: odd }),
      () => db.feed({ after: odd }), () => db.batch().commit({ durability: odd }),
      () => Db.open(`${db.path}-2`, { memory: odd })
    ]
    for (const call of calls) await assert.rejects(async () => call(), mistake, String(call))
  }
  const others = [
    () => map.expire('k'), () => map.getMany('k'), () => map.hasMany(), () => map.putMany(7),
    () => map.putMany(['kv']), () => map.add('n', 'many'), () => map.as(null), () => db.transact(),
    () => db.createKeyspace('new', { history: -1 }), () => db.createKeyspace('new', { history: 0.5 }),
    () => db.createKeyspace('new', { history: 2 ** 32 }), () => db.transact(() => 1, { attempts: 0 }),
    () => db.transact(() => 1, { attempts: NaN }), () => db.feed({ after: 0.5 }),
    () => db.transact((tx) => { tx.savepoint(); tx.rollbackTo(2 ** 32 + 1) }),
    () => db.transact((tx) => tx.lock('map', 'k'))
  ]
  for (const call of others) {
    await assert.rejects(async () => call(), mistake, String(call))
  }
  assert.equal(db.newestCommit, before)
  assert.ok(await map.ttl('k') < Infinity)
  await map.put('part', 'v', { ttl: 3600000.5 })
  await map.put('brief', 'v', { ttl: 0.001 })
  assert.ok(await map.ttl('part') > 3590000)
})

test('ranges: ends, directions, limits, chunks', async (t) => {
  const map = (await open(t)).keyspace('map', { keys: 'utf8', values: 'utf8' })
  const all = Array.from({ length: 5000 }, (_, i) => [String(i).padStart(5, '0'), `value ${i}`])
  await map.putMany(all)
  const cases = [
    [{}, all],
    [{ gte: '00010', lt: '00020' }, all.slice(10, 20)],
    [{ gt: '00010', lte: '00020' }, all.slice(11, 21)],
    [{ prefix: '012' }, all.slice(1200, 1300)],
    [{ reverse: true, limit: 3 }, all.slice(-3).reverse()],
    [{ limit: 2500 }, all.slice(0, 2500)],
    [{ limit: 0 }, []],
    [{ gt: '3', lt: '2' }, []],
    [{ gte: '00020', lte: '00010', reverse: true }, []]
  ]
  for (const [range, expected] of cases) {
    assert.deepEqual(await map.range(range).toArray(), expected)
    assert.deepEqual([...map.range(range)], expected)
    assert.deepEqual(await map.keys(range).toArray(), expected.map(([key]) => key))
    assert.deepEqual([...map.values(range)], expected.map(([, value]) => value))
  }
  const walk = map.range()[Symbol.asyncIterator]()
  const some = await Promise.all(Array.from({ length: 100 }, () => walk.next()))
  assert.deepEqual(some.map(({ value }) => value), all.slice(0, 100))
  await walk.return()
  assert.equal((await walk.next()).done, true)
  const seen = []
  for await (const [key] of map.range()) {
    // A loop sees the state at its start.
    if (seen.push(key) === 1) await map.clear()
  }
  assert.equal(seen.length, all.length)
  assert.equal(await map.count(), 0)
})

test('ttl, merge, swap, add, remove, pop', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map', { keys: 'utf8', values: 'utf8' })
  await map.put('short', 'x', { ttl: 30 })
  await map.put('long', 'x', { ttl: 60000 })
  await map.put('ever', 'x')
  assert.ok(await map.ttl('long') > 50000)
  assert.equal(await map.ttl('ever'), Infinity)
  assert.equal(await map.expire('ever', 70000), true)
  assert.ok(await map.ttl('ever') > 60000)
  assert.equal(await map.expire('none', 1), false)
  assert.equal(await map.expire('ever', Infinity), true)
  assert.equal(await map.ttl('ever'), Infinity)
  await sleep(60)
  assert.deepEqual([await map.get('short'), await map.ttl('short')], [undefined, undefined])
  const counts = await db.createKeyspace('counts', { keys: 'utf8', mergeOperator: 'add-i64' })
  const one = Buffer.alloc(8)
  one.writeBigInt64LE(1n)
  await Promise.all(Array.from({ length: 20 }, () => counts.merge('n', one)))
  assert.equal((await counts.get('n')).readBigInt64LE(), 20n)
  assert.equal(await counts.add('n', -5), 20n)
  assert.equal(await counts.add('n'), 15n)
  await assert.rejects(db.createKeyspace('counts'), { code: 'ESKER_KEYSPACE_EXISTS' })
  assert.deepEqual(await map.compareAndSwap('ever', 'y', 'z'), { swapped: false, old: 'x' })
  assert.deepEqual(await map.compareAndSwap('ever', 'x', 'z'), { swapped: true, old: 'x' })
  assert.deepEqual(await map.compareAndSwap('new', undefined, 'z'), { swapped: true, old: undefined })
  assert.deepEqual(await map.compareAndSwap('ever', 'z', undefined), { swapped: true, old: 'z' })
  assert.deepEqual([await map.remove('new'), await map.remove('new')], ['z', undefined])
  await map.put('last', 'l')
  assert.deepEqual([await map.popLast(), await map.popFirst()], [['long', 'x'], ['last', 'l']])
  assert.equal(await map.popFirst(), undefined)
})

test('writes are committed in the order of the calls, small and large', async (t) => {
  const db = await open(t, { durability: 'none', memory: 64 << 20 })
  const map = db.keyspace('map')
  const sizes = [1, 2 << 20, 1, 10 << 20, 30 << 20, 1, 1]
  const writes = sizes.map((size, i) => map.put('key', Buffer.alloc(size, i)))
  writes.push(map.delete('other'), map.deleteRange({ gte: 'key', lt: 'kez' }), map.put('key', 'last'))
  const numbers = await Promise.all(writes)
  assert.deepEqual(numbers, numbers.toSorted((a, b) => a - b))
  assert.equal(map.getSync('key').toString(), 'last')
})

test('snapshots, batches, keyspaces that are renamed and dropped', async (t) => {
  const db = await open(t)
  const [a, b] = ['a', 'b'].map((name) => db.keyspace(name, { keys: 'utf8', values: 'utf8' }))
  const writes = db.batch().put(a, '1', 'x').put(b, '1', 'y').delete(b, '1')
  const number = await writes.commit({ durability: 'none' })
  const snapshot = db.snapshot()
  assert.equal(snapshot.seqno, number)
  await a.put('1', 'changed')
  assert.deepEqual([await snapshot.get(a, '1'), await snapshot.count(b), a.getSync('1')], ['x', 0, 'changed'])
  assert.deepEqual([...snapshot.range(a)], [['1', 'x']])
  assert.deepEqual(await snapshot.keyspace(a).keys().toArray(), ['1'])
  snapshot[Symbol.dispose]()
  await assert.rejects(snapshot.get(a, '1'), { code: 'ESKER_INVALID' })
  const batch = db.batch().put(a, '2', 'z')
  assert.throws(() => batch.put('a', '2', 'z'), { code: 'ESKER_INVALID' })
  await batch.commit()
  await assert.rejects(batch.commit(), { code: 'ESKER_INVALID' })
  await db.renameKeyspace('a', 'c')
  assert.equal(a.name, 'c')
  await assert.rejects(db.renameKeyspace('c', 'b'), { code: 'ESKER_KEYSPACE_EXISTS' })
  await db.dropKeyspace('b')
  await assert.rejects(b.put('1', 'x'), { code: 'ESKER_KEYSPACE_NOT_FOUND' })
  const other = Db.memory()
  assert.throws(() => other.batch().put(a, '1', 'x'), { code: 'ESKER_INVALID' })
  await other.close()
})

test('the feed, as commits happen and afterwards', async (t) => {
  const db = await open(t, { feed: { bytes: 1 << 20, age: 60000 } })
  const map = db.keyspace('map', { keys: 'utf8', values: 'utf8' })
  const after = db.newestCommit
  const seen = []
  const end = new AbortController()
  const follower = (async () => {
    for await (const commit of db.feed({ after, signal: end.signal })) {
      if (seen.push(commit) === 3) end.abort()
    }
  })()
  await map.put('a', '1', { ttl: 60000 })
  await map.deleteRange({ gte: 'b', lt: 'c' })
  const last = await db.batch().put(map, 'x', 'y').delete(map, 'a').commit()
  await follower
  assert.equal(seen[2].seqno, last)
  const changes = seen.flatMap((commit) => commit.changes)
  assert.deepEqual(changes.map(({ change, keyspace, key }) => [change, keyspace, key.toString()]), [
    ['put', 'map', 'a'], ['delete_range', 'map', 'b'], ['put', 'map', 'x'], ['delete', 'map', 'a']])
  assert.ok(changes[0].expiresAt > Date.now())
  assert.equal(changes[1].end.toString(), 'c')
  const again = []
  for await (const commit of db.feed({ after, wait: false })) again.push(commit)
  assert.deepEqual(again, seen)
  await map.setMergeOperator('append')
  const before = Date.now()
  await map.with({ ttl: 60000 }).merge('m', '1')
  await db.batch().merge(map, 'm', '2').commit()
  const merges = []
  for await (const commit of db.feed({ after: last, wait: false })) merges.push(...commit.changes)
  const [first, second] = merges.filter(({ change }) => change === 'merge')
  assert.deepEqual([first.value.toString(), first.lifetime], ['1', 60000])
  assert.ok(first.mergedAt >= before && second.mergedAt >= first.mergedAt && second.mergedAt <= Date.now())
  assert.ok(second.value.toString() === '2' && !('lifetime' in second) && !('mergedAt' in changes[0]))
  await assert.rejects(async () => { for await (const _ of db.feed({ after: 1e9 })) break },
    { code: 'ESKER_FEED_AHEAD' })
  const plain = Db.memory()
  await assert.rejects(async () => { for await (const _ of plain.feed()) break }, { code: 'ESKER_NO_FEED' })
  await plain.close()
})

test('checkpoint, compaction, statistics, health', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map')
  await map.putMany(Array.from({ length: 1000 }, (_, i) => [`key ${i}`, Buffer.alloc(100, i)]))
  await db.flush()
  assert.ok(await map.approximateSize() > 1000)
  const copy = `${db.path}-copy`
  assert.equal(await db.checkpoint(copy), db.newestCommit)
  await assert.rejects(db.checkpoint(copy), { code: 'ESKER_EXISTS' })
  await map.clear()
  await db.compact()
  assert.ok(Object.values(db.stats()).every(Number.isFinite))
  assert.deepEqual(db.health(), { status: 'ok' })
  const copied = await Db.open(copy, { readOnly: true })
  assert.equal(await copied.keyspace('map').count(), 1000)
  await assert.rejects(copied.keyspace('map').put('a', 'b'), { code: 'ESKER_READ_ONLY' })
  await copied.close()
})

test('damage is an error with path and offset', async (t) => {
  const { readdirSync, readFileSync, writeFileSync } = require('node:fs')
  const path = require('node:path')
  const dir = directory(t)
  const db = await Db.open(dir, { compression: false })
  const entries = Array.from({ length: 3000 }, (_, i) => [`key ${i}`, `value ${i}`.repeat(9)])
  await db.keyspace('map').putMany(entries)
  await db.flush()
  await db.close()
  const table = path.join(dir, readdirSync(dir).find((name) => name.endsWith('.sst')))
  const bytes = readFileSync(table)
  bytes[bytes.indexOf('value 77value')] ^= 1
  writeFileSync(table, bytes)
  const damaged = await Db.open(dir)
  await assert.rejects(damaged.check(), (error) =>
    error.code === 'ESKER_CORRUPT' && error.problems.some((text) => text.includes(table)))
  assert.throws(() => damaged.keyspace('map').getSync('key 77'), (error) =>
    error.code === 'ESKER_CORRUPT' && error.path === table && error.offset > 0)
  // A range gives the entries before the damage, then the error.
  const map = damaged.keyspace('map')
  for (const options of [{}, { reverse: true }, { values: false }]) {
    let seen = 0
    await assert.rejects(async () => { for await (const _ of map.range(options)) seen++ },
      { code: 'ESKER_CORRUPT', path: table })
    assert.throws(() => { for (const _ of map.range(options)) seen++ }, { code: 'ESKER_CORRUPT', path: table })
    assert.ok(seen > 100 && seen < 6000, `${seen}`)
  }
  await damaged.close()
})
