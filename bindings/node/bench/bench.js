'use strict'

// Esker beside other stores for Node: node bench.js [rounds]
//
// Each round runs every engine on a new directory, in another order. A figure is the median of the rounds, in
// microseconds for an operation. Only rows that say so wait for the disk.

const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const path = require('node:path')
const engines = require('./engines')

const COUNT = 100000
const rounds = Number(process.argv[2] ?? 5)

let seed = 1
function random (below) {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0
  return (seed >>> 8) % below
}

const key = (n) => `key ${String(n).padStart(12, '0')}`
const value = (n) => Buffer.alloc(100, n)
const entries = (from, count) => Array.from({ length: count }, (_, i) => [key(from + i), value(i)])

const ROWS = {
  'load, batches of 1,000': [COUNT, async (db) => {
    for (let n = 0; n < COUNT; n += 1000) await db.load(entries(n, 1000))
  }],
  'get, synchronous': [100000, (db) => {
    for (let i = 0; i < 100000; i++) if (db.getSync(key(random(COUNT))).length !== 100) throw new Error()
  }],
  'get, awaited': [30000, async (db) => {
    for (let i = 0; i < 30000; i++) if ((await db.get(key(random(COUNT)))).length !== 100) throw new Error()
  }],
  'get many, 100 at a time': [50000, async (db) => {
    for (let i = 0; i < 500; i++) await db.getMany(Array.from({ length: 100 }, () => key(random(COUNT))))
  }],
  'scan of all': [COUNT, async (db) => {
    if (await db.scan() !== COUNT * 100) throw new Error()
  }],
  'scan of 10': [5000, async (db) => {
    for (let i = 0; i < 5000; i++) if (await db.scanShort(key(random(COUNT - 10))) !== 1000) throw new Error()
  }],
  'put, awaited one by one': [5000, async (db) => {
    for (let i = 0; i < 5000; i++) await db.put(key(random(COUNT)), value(i))
  }],
  'put, awaited 1,000 together': [20000, async (db) => {
    for (let i = 0; i < 20; i++) {
      await Promise.all(Array.from({ length: 1000 }, (_, n) => db.put(key(random(COUNT)), value(n))))
    }
  }],
  'durable put, one by one': [100, async (db) => {
    for (let i = 0; i < 100; i++) await db.putDurable(key(random(COUNT)), value(i))
  }],
  'durable put, 100 together': [1000, async (db) => {
    for (let i = 0; i < 10; i++) await db.putManyDurable(entries(random(COUNT - 100), 100))
  }],
  'durable batch of 100': [1000, async (db) => {
    for (let i = 0; i < 10; i++) await db.batchDurable(entries(random(COUNT - 100), 100))
  }],
  'transaction: get and put': [2000, async (db) => {
    for (let i = 0; i < 2000; i++) await db.increment(key(random(COUNT)))
  }]
}

async function round (name, times) {
  const base = mkdtempSync(path.join(process.env.BENCH_DIR ?? tmpdir(), 'esker-bench-'))
  try {
    const db = await engines[name](path.join(base, 'db'))
    for (const [row, [count, body]] of Object.entries(ROWS)) {
      if (row.startsWith('transaction') && db.increment === null) continue
      const start = process.hrtime.bigint()
      await body(db)
      const took = Number(process.hrtime.bigint() - start) / 1000 / count
      times[row][name].push(took)
    }
    await db.close()
  } finally {
    rmSync(base, { recursive: true, force: true })
  }
}

function median (all) {
  const sorted = all.toSorted((a, b) => a - b)
  return sorted.length === 0 ? NaN : sorted[sorted.length >> 1]
}

async function main () {
  const names = Object.keys(engines)
  const times = Object.fromEntries(Object.keys(ROWS).map((row) =>
    [row, Object.fromEntries(names.map((name) => [name, []]))]))
  for (let i = 0; i < rounds; i++) {
    for (let n = 0; n < names.length; n++) {
      global.gc?.()
      await round(names[(n + i) % names.length], times)
    }
  }
  console.log(`| us for an operation | ${names.join(' | ')} |`)
  console.log(`|---|${names.map(() => '---:').join('|')}|`)
  for (const [row, all] of Object.entries(times)) {
    const figures = names.map((name) => median(all[name]))
      .map((us) => Number.isNaN(us) ? '-' : String(Number(us.toPrecision(3))))
    console.log(`| ${row} | ${figures.join(' | ')} |`)
  }
}

main()
