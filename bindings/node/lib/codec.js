'use strict'

// How keys and values become bytes, and bytes keys and values.

const { isUint8Array, isAnyArrayBuffer, isSharedArrayBuffer } = require('node:util').types
const { invalid } = require('./error')
const tuple = require('./tuple')

/** Makes bytes of a string, which becomes UTF-8, or of bytes. */
function bytes (data, what = 'a key') {
  return typeof data === 'string' ? Buffer.from(text(data, what), 'utf8') : plain(data, what)
}

function text (data, what) {
  if (!data.isWellFormed()) throw invalid(`${what} is a string with half of a surrogate pair`)
  return data
}

/** Makes a string that can become UTF-8, or bytes. */
function textOrBytes (data, what) {
  return typeof data === 'string' ? text(data, what) : plain(data, what)
}

/** Makes a Uint8Array of bytes. */
function plain (data, what) {
  if (isAnyArrayBuffer(data)) data = new Uint8Array(data)
  if (data instanceof DataView) data = new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  if (!isUint8Array(data)) {
    const type = data === null ? 'null' : typeof data
    throw invalid(`${what} is of type ${type}: pass a string, Buffer or Uint8Array, or set an encoding`)
  }
  // Another thread could change it while it is read.
  return isSharedArrayBuffer(data.buffer) ? new Uint8Array(data) : data
}

const same = (buffer) => buffer

/** Copies: a small value does not keep a whole chunk alive. */
function copy (chunk, from, to) {
  const buffer = Buffer.allocUnsafe(to - from)
  chunk.copy(buffer, 0, from, to)
  return buffer
}

function utf8 (text, what) {
  if (typeof text !== 'string') throw invalid(`${what} is of type ${typeof text}: its encoding is utf8`)
}

// `raw` makes a string or bytes, `encode` makes bytes of them.
const CODECS = {
  buffer: { encode: bytes, raw: textOrBytes, decode: same, slice: copy },
  utf8: {
    encode (text, what) {
      utf8(text, what)
      return bytes(text, what)
    },
    raw (data, what) {
      utf8(data, what)
      return text(data, what)
    },
    decode: (buffer) => buffer.utf8Slice(0, buffer.length),
    slice: (chunk, from, to) => chunk.utf8Slice(from, to)
  },
  json: {
    encode (value, what) {
      const text = JSON.stringify(value)
      if (text === undefined) throw invalid(`${what} is of type ${typeof value}, which JSON does not have`)
      return Buffer.from(text, 'utf8')
    },
    decode: (buffer) => JSON.parse(buffer.utf8Slice(0, buffer.length)),
    slice: (chunk, from, to) => JSON.parse(chunk.utf8Slice(from, to))
  },
  tuple: { encode: (fields) => tuple.pack(fields), decode: (buffer) => tuple.unpack(buffer) }
}

/** Returns the codec of a name, or the object itself. */
function codec (encoding = 'buffer') {
  const found = typeof encoding === 'string' ? CODECS[encoding] : encoding
  if (typeof found?.encode !== 'function' || typeof found?.decode !== 'function') {
    throw invalid(`${JSON.stringify(encoding)} is no encoding: ${Object.keys(CODECS).join(', ')}, ` +
      'or an object with encode and decode')
  }
  return found
}

// The other calls of codecs are those of this file only.
const BUILT_IN = new Set(Object.values(CODECS))

/** Returns what makes a string or bytes. */
function rawer (codec) {
  if (BUILT_IN.has(codec) && codec.raw) return codec.raw
  return (value, what) => bytes(codec.encode(value, what), what)
}

/** Returns what decodes a part of a chunk, or of the room. It keeps none of its bytes. */
function slicer (codec) {
  if (BUILT_IN.has(codec) && codec.slice) return codec.slice
  return (chunk, from, to) => codec.decode(copy(chunk, from, to))
}

/** The first key behind all keys with a prefix. Undefined: there is none. */
function behind (prefix) {
  let end = prefix.length
  while (end > 0 && prefix[end - 1] === 0xff) end--
  if (end === 0) return undefined
  const key = Buffer.from(prefix.subarray(0, end))
  key[end - 1]++
  return key
}

/** The ends of a range in the order of native calls: start, whether it is in, end, whether it is in. */
function ends (range, key) {
  const one = (a, b, name) => {
    if (a !== undefined && b !== undefined) throw invalid(`pass one of ${name}`)
    return a !== undefined ? key.encode(a, 'a key') : b !== undefined ? key.encode(b, 'a key') : undefined
  }
  if (range.prefix !== undefined) {
    if (['gt', 'gte', 'lt', 'lte'].some((name) => range[name] !== undefined)) {
      throw invalid('pass a prefix, or ends of a range')
    }
    const start = key.prefix ? key.prefix(range.prefix) : key.encode(range.prefix, 'a prefix')
    return [start, true, behind(start), false]
  }
  const start = one(range.gt, range.gte, 'gt, gte')
  const end = one(range.lt, range.lte, 'lt, lte')
  return [start, range.gt === undefined, end, range.lt === undefined]
}

/** The keys of a list one after the other, and their lengths. */
function joined (keys) {
  return [Buffer.concat(keys), Uint32Array.from(keys, (key) => key.length)]
}

module.exports = { bytes, codec, copy, ends, joined, rawer, slicer }
