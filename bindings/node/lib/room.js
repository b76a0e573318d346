'use strict'

// The room: memory through which keys, values and short chunks pass to native code and back. That is faster
// than a buffer for each of them. No other code runs while something is in it.

const room = Buffer.allocUnsafeSlow(1 << 17)
// What a read in memory finds, besides values.
const ABSENT = Symbol('absent')
const UNKNOWN = Symbol('unknown')
// Shorter strings are written faster here than by a call.
const SHORT = 48

/** Writes a string or bytes into memory from `at` on. Returns the end, or -1 if it may not fit. */
function place (data, at, into = room) {
  if (typeof data !== 'string') {
    if (data.length > into.length - at) return -1
    into.set(data, at)
    return at + data.length
  }
  const { length } = data
  if (length * 3 > into.length - at) return -1
  if (length > SHORT) return at + into.utf8Write(data, at)
  for (let i = 0; i < length; i++) {
    const unit = data.charCodeAt(i)
    if (unit > 0x7f) return at + into.utf8Write(data, at)
    into[at + i] = unit
  }
  return at + length
}

/**
 * Reads a key in memory: its value, ABSENT, or UNKNOWN if a file would have to be read or the value is too
 * large.
 */
function find (native, key, slice) {
  const end = place(key, 0)
  if (end === -1) return UNKNOWN
  const length = native.find(room, end)
  return length >= 0 ? slice(room, 0, length) : length === -1 ? ABSENT : UNKNOWN
}

/** Writes one key: `soon` starts the call. The key and the value are strings or bytes. */
function write (native, soon, what, key, value) {
  const middle = place(key, 0)
  const end = middle === -1 ? -1 : place(value, middle)
  if (end !== -1) return soon((number) => native.writeIn(number, what, room, middle, end))
  const [encoded, data] = [asBytes(key), asBytes(value)]
  return soon((number) => native.write(number, what, encoded, data))
}

function asBytes (data) {
  return typeof data === 'string' ? Buffer.from(data, 'utf8') : data
}

module.exports = { ABSENT, UNKNOWN, asBytes, find, place, room, write }
