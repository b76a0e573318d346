'use strict'

// Kills a process while it writes. What it had acknowledged is there, and each transaction is whole.

const test = require('node:test')
const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { createInterface } = require('node:readline')
const path = require('node:path')
const { directory, Db } = require('./common')

// Says what is acknowledged, a line each: a batch of puts by number, a transaction, a removed range.
const WRITER = `
  const { writeSync } = require('node:fs')
  const { Db } = require(${JSON.stringify(path.join(__dirname, '..'))})
  const [dir, from] = process.argv.slice(1)
  ;(async () => {
    const db = await Db.open(dir, { memory: 16 << 20, blobsFrom: 4000 })
    const [map, pairs] = ['map', 'pairs'].map((name) => db.keyspace(name))
    const say = (what, n) => writeSync(1, what + ' ' + n + '\\n')
    const key = (n) => String(n).padStart(9, '0')
    for (let n = Number(from); ; n += 10) {
      await Promise.all(Array.from({ length: 10 }, (_, i) =>
        map.put(key(n + i), Buffer.alloc(i * 700, n + i)).then(() => say('put', n + i))))
      await db.transact(async (t) => {
        t.put(pairs, 'a', key(n))
        await t.get(pairs, 'b')
        t.put(pairs, 'b', key(n))
      })
      say('pair', n)
      if (n % 100 === 90) {
        await map.deleteRange({ gte: key(n - 50), lt: key(n - 40) })
        say('range', n)
      }
    }
  })()`

const key = (n) => String(n).padStart(9, '0')

/** Runs the writer, kills it after a number of lines, and returns all lines that came. */
async function killed (dir, from, lines) {
  const program = ['-e', WRITER, dir, String(from)]
  const writer = spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'inherit'] })
  const said = []
  for await (const line of createInterface({ input: writer.stdout })) {
    if (said.push(line.split(' ')) === lines) writer.kill('SIGKILL')
  }
  return said.map(([what, n]) => ({ what, n: Number(n) }))
}

test('a killed process loses nothing that it has acknowledged', async (t) => {
  const dir = directory(t)
  const removed = new Set()
  const all = []
  for (let round = 0; round < 8; round++) {
    const from = round * 1000000
    const said = await killed(dir, from, 150 + round * 137)
    assert.ok(said.length >= 150 + round * 137)
    all.push(...said)
    for (const { n } of said.filter(({ what }) => what === 'range')) {
      for (let i = n - 50; i < n - 40; i++) removed.add(i)
    }
    const db = await Db.open(dir, { lockTimeout: 10000 })
    const [map, pairs] = ['map', 'pairs'].map((name) => db.keyspace(name))
    await db.check()
    for (const { n } of all.filter(({ what }) => what === 'put')) {
      const value = map.getSync(key(n))
      // A removal that was under way may have been made.
      const isLost = value === undefined && !removed.has(n) && n % 100 >= 40 && n % 100 < 50
      if (isLost && n > said.at(-1).n - 60) continue
      if (removed.has(n)) assert.equal(value, undefined, `key ${n}`)
      else assert.deepEqual(value, Buffer.alloc(n % 10 * 700, n), `key ${n}`)
    }
    const [a, b] = (await pairs.getMany(['a', 'b'])).map(String)
    assert.equal(a, b)
    const last = said.filter(({ what }) => what === 'pair').at(-1)
    if (last !== undefined) assert.ok(Number(a) >= last.n, `${a} is before ${last.n}`)
    await db.close()
  }
})
