'use strict'

// Calls that are done at once, in the thread of the program, and those that look like them but have to wait.

const test = require('node:test')
const assert = require('node:assert/strict')
const { setTimeout: sleep } = require('node:timers/promises')
const { directory, open, Db } = require('./common')

const buffered = (t) => open(t, { durability: 'buffered' })

test('a commit that waits for nothing is made by its call', async (t) => {
  const db = await buffered(t)
  const map = db.keyspace('map', { keys: 'utf8', values: 'json' })
  await map.put('first', 0)
  let made = 0
  let last = 0
  for (let n = 1; n <= 200; n++) {
    const put = map.put('key', n)
    made += map.getSync('key') === n ? 1 : 0
    const seqno = await put
    assert.ok(seqno > last && db.newestCommit >= seqno)
    last = seqno
    assert.equal(map.getSync('key'), n)
    const tx = await db.begin()
    assert.equal(await tx.get(map, 'key'), n)
    tx.put(map, 'other', n)
    last = await tx.commit()
    assert.equal(await map.get('other'), n)
  }
  // Now and then one meets the thread that syncs.
  assert.ok(made > 150, `${made} of 200`)
})

test('commits have the order of the calls, whatever they wait for', async (t) => {
  const db = await buffered(t)
  const map = db.keyspace('map', { keys: 'utf8', values: 'json' })
  const durable = map.with({ durability: 'sync' })
  for (let round = 0; round < 20; round++) {
    const commits = []
    for (let n = 0; n < 60; n++) {
      const kind = (n * 7 + round) % 6
      if (kind === 0) commits.push(durable.put('key', [round, n]))
      else if (kind === 1) commits.push(map.deleteRange({ gte: 'x' }), map.put('key', [round, n]))
      else if (kind === 2) commits.push(db.batch().put(map, 'key', [round, n]).commit())
      else if (kind === 3) commits.push(map.putMany([['key', [round, n]], ['more', 'x'.repeat(n === 9 ? 2e6 : 9)]]))
      else commits.push(map.put('key', [round, n]))
    }
    const numbers = await Promise.all(commits)
    assert.deepEqual(numbers, numbers.toSorted((a, b) => a - b))
    assert.equal(new Set(numbers).size, numbers.length)
    assert.deepEqual(map.getSync('key'), [round, 59])
  }
})

test('long loops of calls that are done at once let other work run', async (t) => {
  const db = await buffered(t)
  const map = db.keyspace('map')
  const loops = [
    (n) => map.put('key', String(n)),
    () => map.get('key'),
    () => map.has('key'),
    async () => { for await (const entry of map.range({ limit: 1 })) assert.ok(entry) },
    () => db.transact((tx) => { tx.put(map, 'key', 'x') })
  ]
  for (const call of loops) {
    let [turns, goesOn] = [0, true]
    const turn = () => {
      turns++
      if (goesOn) setImmediate(turn)
    }
    setImmediate(turn)
    for (let n = 0; n < 2000; n++) await call(n)
    goesOn = false
    assert.ok(turns >= 5, `${turns} turns during 2,000 calls of ${call}`)
    await sleep(1)
  }
})

test('a commit behind an exclusive transaction does not block the thread', async (t) => {
  const db = await buffered(t)
  const map = db.keyspace('map', { keys: 'utf8', values: 'utf8' })
  await map.put('key', 'first')
  const tx = await db.begin({ isolation: 'exclusive' })
  tx.put(map, 'key', 'exclusive')
  let isDone = false
  const put = map.put('key', 'last').then(() => { isDone = true })
  const batch = db.batch().put(map, 'other', 'x').commit()
  await sleep(50)
  assert.equal(isDone, false)
  assert.equal(map.getSync('key'), 'first')
  await tx.commit()
  await Promise.all([put, batch])
  assert.equal(map.getSync('key'), 'last')
})

test('reads of files and large values are those of memory', async (t) => {
  const dir = directory(t)
  const all = Array.from({ length: 3000 }, (_, i) => [String(i).padStart(5, '0'), `${i} `.repeat(100)])
  all.push(['large', 'x'.repeat(300000)], ['next', 'y'.repeat(200000)])
  {
    const db = await Db.open(dir, { compression: false })
    await db.keyspace('map').putMany(all)
    await db.compact()
    await db.close()
  }
  const db = await Db.open(dir, { memory: 16 << 20 })
  t.after(() => db.close())
  const map = db.keyspace('map', { keys: 'utf8', values: 'utf8' })
  assert.deepEqual(map.getCached('00100'), { cached: false })
  const ranges = [{}, { reverse: true }, { gte: '00100', limit: 10 }, { gte: 'large' }, { prefix: '01', limit: 40 }]
  const expected = [all, all.toReversed(), all.slice(100, 110), all.slice(-2), all.slice(1000, 1040)]
  for (let round = 0; round < 2; round++) {
    for (const [i, range] of ranges.entries()) {
      const snapshot = db.snapshot()
      const tx = await db.begin()
      assert.deepEqual(await map.range(range).toArray(), expected[i])
      assert.deepEqual([...map.range(range)], expected[i])
      assert.deepEqual(await snapshot.range(map, range).toArray(), expected[i])
      assert.deepEqual(await tx.range(map, range).toArray(), expected[i])
      tx.rollback()
      snapshot.close()
    }
    for (const [key, value] of [all[7], all[2999], all[3000], all[3001]]) {
      assert.equal(await map.get(key), value)
      assert.equal(map.getSync(key), value)
      assert.deepEqual(await map.getMany([key, 'none']), [value, undefined])
      assert.equal(await map.has(key), true)
    }
  }
  assert.equal(map.getCached('large').value ?? all[3000][1], all[3000][1])
})

test('encodings and iterators may make calls while others are under way', async (t) => {
  const db = await buffered(t)
  const plain = db.keyspace('plain', { keys: 'utf8', values: 'utf8' })
  await plain.put('a', 'of another keyspace')
  const meddles = (value) => {
    assert.equal(plain.getSync('a'), 'of another keyspace')
    assert.equal([...plain.values()].length > 0, true)
    return Buffer.from(JSON.stringify(value))
  }
  const odd = { encode: meddles, decode: (bytes) => (meddles(0), JSON.parse(bytes.toString())) }
  const map = db.keyspace('map', { keys: odd, values: odd })
  function * entries () {
    for (let n = 0; n < 600; n++) {
      if (n % 100 === 0) plain.putMany([[`in ${n}`, 'x'.repeat(n * 300)]]).catch(assert.fail)
      yield [n, { n, text: '\u00e9\u{1f600}'.repeat(n % 60), toJSON () { return meddles(0) && { n } } }]
    }
  }
  await map.putMany(entries())
  await map.put('key', 'value')
  assert.equal(await map.get('key'), 'value')
  assert.deepEqual(map.getSync(599), { n: 599 })
  assert.equal((await map.range().toArray()).length, 601)
  assert.equal([...plain.keys({ prefix: 'in ' })].length, 6)
  assert.equal(plain.getSync('in 500').length, 150000)
  await assert.rejects(db.keyspace('bad', { values: { encode: () => 7, decode: () => 7 } }).put('k', 1),
    { code: 'ESKER_INVALID' })
})

test('many staged writes: sizes, kinds of text, removals', async (t) => {
  const { EskerLevel } = require('../level')
  const level = new EskerLevel(directory(t))
  const texts = ['', 'a', '\u00e9', '\u{1f600}'.repeat(20), 'k'.repeat(49), 'x'.repeat(40000), 'y'.repeat(70000)]
  const entries = texts.flatMap((text, i) => texts.map((value, j) => [`${i} ${j} ${text.slice(0, 60)}`, value]))
  await level.batch(entries.map(([key, value]) => ({ type: 'put', key, value })))
  assert.deepEqual(await level.iterator().all(), entries.toSorted(([a], [b]) => a < b ? -1 : 1))
  await level.batch([...entries.slice(1).map(([key]) => ({ type: 'del', key })), { type: 'put', key: 'z', value: '1' }])
  assert.deepEqual(await level.iterator().all(), [entries[0], ['z', '1']])
  await level.close()
})

test('calls after the end are refused', async (t) => {
  const db = await Db.open(directory(t), { durability: 'buffered' })
  const map = db.keyspace('map')
  await map.put('key', 'value')
  const batch = db.batch().put(map, 'key', 'x')
  const tx = await db.begin()
  await db.close()
  const code = { code: 'ESKER_CLOSED' }
  const calls = [() => map.put('k', 'v'), () => map.get('key'), () => map.has('key'), () => map.putMany([['k', 'v']]),
    () => map.getMany(['key']), () => batch.commit(), () => tx.commit(), () => db.begin(), () => map.range().toArray()]
  for (const call of calls) await assert.rejects(async () => call(), code, String(call))
  assert.throws(() => map.getSync('key'), code)
})

test('a handle with a durability of its own has it for many puts, too', async (t) => {
  const db = await buffered(t)
  const map = db.keyspace('map', { keys: 'utf8', values: 'json' })
  const durable = map.with({ durability: 'sync' }).with({ ttl: 1e6 }).as({ values: 'json' })
  await map.put('key', 0)
  const made = { buffered: 0, durable: 0 }
  for (let n = 1; n <= 20; n++) {
    for (const [name, handle] of Object.entries({ buffered: map, durable })) {
      const commit = handle.putMany([[name, n]])
      // A commit that waits for the disk is seen later.
      made[name] += map.getSync(name) === n ? 1 : 0
      await commit
      assert.equal(map.getSync(name), n)
    }
  }
  assert.ok(made.buffered > 10 && made.durable < 10, JSON.stringify(made))
})
