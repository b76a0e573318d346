'use strict'

// Closing, garbage collection, worker threads, exits.

const test = require('node:test')
const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const path = require('node:path')
const { Worker } = require('node:worker_threads')
const { setTimeout: sleep } = require('node:timers/promises')
const { directory, open, Db } = require('./common')

test('closing waits for calls under way; later calls are errors', async (t) => {
  const dir = directory(t)
  const db = await Db.open(dir, { feed: true })
  const map = db.keyspace('map')
  await map.putMany(Array.from({ length: 5000 }, (_, i) => [`key ${i}`, 'value']))
  const [snapshot, tx, batch] = [db.snapshot(), await db.begin(), db.batch().put(map, 'a', 'b')]
  tx.put(map, 'a', 'b')
  const walk = map.range()[Symbol.asyncIterator]()
  await walk.next()
  const sync = map.range()[Symbol.iterator]()
  sync.next()
  const under = [map.put('late', 'x'), map.count(), map.range().toArray().catch((error) => error.code),
    ...Array.from({ length: 200 }, (_, i) => map.remove(`key ${i}`))]
  const follower = (async () => { for await (const _ of db.feed()); })()
  await Promise.all([db.close(), db.close()])
  const done = await Promise.all(under)
  assert.equal(done[3].toString(), 'value')
  await follower
  for (const call of [() => map.get('a'), () => map.put('a', 'b'), () => tx.commit(), () => batch.commit(),
    () => snapshot.get(map, 'a'), () => db.begin(), () => db.check(), () => map.count(),
    () => walkOn(walk)]) {
    await assert.rejects(call, { code: 'ESKER_CLOSED' })
  }
  for (const call of [() => map.getSync('a'), () => db.snapshot(), () => db.keyspace('map'),
    () => tx.put(map, 'a', 'b'), () => [...map.range()], () => { for (;;) sync.next() }, () => db.stats()]) {
    assert.throws(call, { code: 'ESKER_CLOSED' })
  }
  snapshot.close()
  tx.rollback()
  assert.equal(db.isOpen, false)
  const again = await Db.open(dir)
  assert.equal(again.keyspace('map').getSync('late').toString(), 'x')
  await again.close()
})

async function walkOn (walk) {
  while (!(await walk.next()).done);
}

test('closing ends open transactions, so that others go on', async (t) => {
  const db = await open(t)
  const map = db.keyspace('map')
  const tx = await db.begin({ isolation: 'exclusive' })
  tx.put(map, 'a', 'b')
  const waits = map.put('c', 'd')
  await db.close()
  await waits
  assert.throws(() => tx.put(map, 'a', 'b'), { code: 'ESKER_CLOSED' })
})

test('handles that are forgotten free what they hold', async (t) => {
  const dir = directory(t)
  const db = await Db.open(dir)
  const map = db.keyspace('map')
  await map.put('n', '0')
  const before = () => db.stats()
  const names = Object.keys(before()).filter((name) => /snapshot/.test(name))
  for (let i = 0; i < 2000; i++) {
    db.snapshot().getSync(map, 'n')
    map.range()[Symbol.iterator]().next()
    const tx = await db.begin()
    tx.put(map, 'n', String(i))
    tx.getSync(map, 'n')
  }
  (await db.begin({ isolation: 'exclusive' })).put(map, 'n', 'never')
  for (let i = 0; i < 20; i++) {
    await sleep(10)
    global.gc()
  }
  // The forgotten exclusive transaction would hold up this one.
  await map.put('n', 'last')
  assert.ok(names.length > 0)
  await db.close()
})

test('memory stays bounded over many calls', async () => {
  const db = Db.memory({ memory: 16 << 20, durability: 'none' })
  const map = db.keyspace('map')
  const value = Buffer.alloc(1000)
  const round = async () => {
    for (let i = 0; i < 100; i++) {
      await Promise.all(Array.from({ length: 50 }, (_, n) => map.put(`key ${n}`, value)))
      for (let n = 0; n < 50; n++) map.getSync(`key ${n}`)
      await map.range().toArray()
      await map.get('nothing')
    }
    await sleep(1)
    global.gc()
    return process.memoryUsage().rss
  }
  await round()
  const first = await round()
  for (let i = 0; i < 5; i++) await round()
  const growth = await round() - first
  assert.ok(growth < 48 << 20, `grew by ${growth} bytes in 30,000 writes`)
  await db.close()
})

test('worker threads have databases of their own, and may be ended', async (t) => {
  const program = `
    const { Db } = require(${JSON.stringify(path.join(__dirname, '..'))})
    const { workerData, parentPort } = require('node:worker_threads')
    ;(async () => {
      const db = await Db.open(workerData)
      const map = db.keyspace('map')
      for (let i = 0; i < 200; i++) await map.put(String(i), 'x')
      parentPort.postMessage(await map.count())
      for (;;) map.put('more', 'x'), await map.range().toArray()
    })()`
  const dirs = [1, 2, 3].map(() => directory(t))
  await Promise.all(dirs.map(async (dir) => {
    const worker = new Worker(program, { eval: true, workerData: dir })
    const count = await new Promise((resolve, reject) => {
      worker.once('message', resolve)
      worker.once('error', reject)
    })
    assert.equal(count, 200)
    await worker.terminate()
  }))
  global.gc()
  for (const dir of dirs) {
    const db = await Db.open(dir, { lockTimeout: 10000 })
    assert.equal((await db.keyspace('map').getMany(['0', '199'])).filter(Boolean).length, 2)
    await db.close()
  }
})

test('worker threads share a database with the option multithreading', async (t) => {
  const program = `
    const { Db } = require(${JSON.stringify(path.join(__dirname, '..'))})
    const { workerData, parentPort } = require('node:worker_threads')
    ;(async () => {
      const db = await Db.open(workerData, { multithreading: true })
      const map = db.keyspace('map', { keys: 'utf8', values: 'json' })
      await Promise.all(Array.from({ length: 50 }, () => db.transact(async (t) => {
        t.put(map, 'n', (await t.get(map, 'n') ?? 0) + 1)
      })))
      await db.transact(async (t) => {
        t.put(map, 'x', (await t.get(map, 'x') ?? 0) + 1)
      }, { isolation: 'exclusive' })
      await db.close()
      parentPort.postMessage('done')
    })()`
  const dir = directory(t)
  const db = await Db.open(dir, { multithreading: true })
  const map = db.keyspace('map', { keys: 'utf8', values: 'json' })
  const workers = Array.from({ length: 4 }, () => new Worker(program, { eval: true, workerData: dir }))
  await Promise.all(workers.map((worker) => new Promise((resolve, reject) => {
    worker.once('message', resolve)
    worker.once('error', reject)
  })))
  assert.deepEqual([map.getSync('n'), map.getSync('x')], [200, 4])
  await assert.rejects(Db.open(dir), { code: 'ESKER_LOCKED' })
  await db.close()
  const alone = await Db.open(dir)
  await alone.check()
  await alone.close()
})

test('a process ends by itself, with and without close, and in the middle of calls', (t) => {
  const lib = JSON.stringify(path.join(__dirname, '..'))
  const run = (body) => {
    const program = `const { Db } = require(${lib}); (async () => {
      const db = await Db.open(${JSON.stringify(directory(t))}); const map = db.keyspace('map'); ${body} })()`
    const ended = spawnSync(process.execPath, ['-e', program], { timeout: 60000 })
    const { status, signal, stderr, stdout } = ended
    assert.deepEqual([status, signal, stderr.toString()], [0, null, ''])
    return stdout.toString()
  }
  assert.equal(run("await map.put('a', 'b'); await db.close(); process.stdout.write('done')"), 'done')
  assert.equal(run("await map.put('a', 'b'); process.stdout.write('done')"), 'done')
  assert.equal(run("await db.begin({ isolation: 'exclusive' }); process.stdout.write('done')"), 'done')
  assert.equal(run("for (let i = 0; i < 9; i++) map.put('a', 'b'); map.count(); process.exit()"), '')
})

test('EskerLevel.destroy removes the files of a database, and no others', async (t) => {
  const { existsSync, readdirSync, writeFileSync } = require('node:fs')
  const { EskerLevel } = require('../level')
  const dir = directory(t)
  const level = new EskerLevel(dir)
  await level.put('a', 'b')
  await assert.rejects(EskerLevel.destroy(dir), { code: 'LEVEL_LOCKED' })
  await level.close()
  const notes = path.join(dir, 'notes')
  writeFileSync(notes, '')
  await EskerLevel.destroy(dir)
  assert.deepEqual(readdirSync(dir), ['notes'])
  await EskerLevel.destroy(dir)
  await assert.rejects(EskerLevel.destroy(notes), { code: 'ESKER_IO' })
  assert.ok(existsSync(notes))
  await EskerLevel.destroy(path.join(dir, 'missing'))
  const whole = path.join(dir, 'whole')
  await (await Db.open(whole)).close()
  await EskerLevel.destroy(whole)
  assert.ok(!existsSync(whole))
})
