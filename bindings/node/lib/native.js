'use strict'

// The addon, and the promises of calls that wait in it.
//
// A call takes a number. Its outcome arrives together with others that are done: one call from native code
// settles all of them. While a promise is pending, a timer keeps the process alive.

const PLATFORM = `${process.platform}-${process.arch}`

function load () {
  const tried = []
  for (const place of ['../esker.node', `@esker-db/esker-${PLATFORM}`]) {
    try {
      return require(place)
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error
      tried.push(place)
    }
  }
  throw new Error(`Esker has no binary for ${PLATFORM} (tried ${tried.join(', ')}): ` +
    'build one with `npm run build` in bindings/node, which needs Rust')
}

const native = load()
const pending = new Map()
const alive = setInterval(() => {}, 0x7fffffff).unref()
let last = 0

function settle () {
  const outcomes = calls.take()
  for (let i = 0; i < outcomes.length; i += 3) {
    const call = pending.get(outcomes[i])
    pending.delete(outcomes[i])
    call.owner?.callEnds()
    if (outcomes[i + 1]) call.reject(outcomes[i + 2])
    else call.resolve(outcomes[i + 2])
  }
  if (pending.size === 0) alive.unref()
}

const calls = new native.Loop(settle)

// After this many calls that were done at once, one waits for the other work of the thread.
const STREAK_MAX = 128
let streak = 0

/** The result of a call that was done at once. */
function atOnce (result) {
  if (++streak < STREAK_MAX) return result
  streak = 0
  return new Promise((resolve) => { setImmediate(resolve, result) })
}

/**
 * Starts a call that may be done at once: `start` gets its number, and returns its result, or null if that
 * arrives later.
 */
function soon (owner, start) {
  owner.checkOpen()
  do last = (last + 1) >>> 0; while (pending.has(last))
  const number = last
  const result = start(number)
  return result === null ? later(owner, number) : atOnce(result)
}

function later (owner, number) {
  return new Promise((resolve, reject) => {
    owner.callBegins()
    if (pending.size === 0) alive.ref()
    pending.set(number, { owner, resolve, reject })
  })
}

/**
 * Starts a call that waits: `start` gets its number. `owner` counts the calls that are under way.
 */
function call (owner, start) {
  return new Promise((resolve, reject) => {
    owner?.callBegins()
    do last = (last + 1) >>> 0; while (pending.has(last))
    const number = last
    if (pending.size === 0) alive.ref()
    pending.set(number, { owner, resolve, reject })
    try {
      start(number)
    } catch (error) {
      pending.delete(number)
      if (pending.size === 0) alive.unref()
      owner?.callEnds()
      reject(error)
    }
  })
}

// Kinds of writes, as src/write.rs numbers them.
const WRITE = { put: 1, delete: 2, merge: 3 }

module.exports = { native, calls, call, soon, atOnce, WRITE }
