'use strict'

// Keys of several fields, in the tuple encoding of FoundationDB. Their bytes sort as the fields do.

const { isUint8Array } = require('node:util').types
const { native } = require('./native')
const { invalid } = require('./error')

const TAGS = { float: 4, double: 8, uuid: 16 }

/** A float of 32 or 64 bits, with all its bits. */
class Real {
  constructor (tag, bytes) {
    this.tag = tag
    this.bytes = bytes
  }

  get value () {
    const view = Buffer.from(this.bytes)
    return this.tag === TAGS.float ? view.readFloatBE(0) : view.readDoubleBE(0)
  }

  valueOf () {
    return this.value
  }
}

class Float extends Real {
  /** Takes a number, or the four bytes of one (big-endian). */
  constructor (value) {
    super(TAGS.float, isUint8Array(value) ? value : floatBytes(value))
  }
}

class Double extends Real {
  /** Takes a number, or the eight bytes of one (big-endian). */
  constructor (value) {
    super(TAGS.double, isUint8Array(value) ? value : doubleBytes(value))
  }
}

function floatBytes (value) {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatBE(value)
  return bytes
}

function doubleBytes (value) {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleBE(value)
  return bytes
}

class Uuid {
  /** Takes text such as `123e4567-e89b-12d3-a456-426614174000`, or 16 bytes. */
  constructor (value) {
    const bytes = isUint8Array(value) ? value : Buffer.from(String(value).replaceAll('-', ''), 'hex')
    if (bytes.length !== 16) throw invalid(`${value} is no UUID`)
    this.tag = TAGS.uuid
    this.bytes = bytes
  }

  toString () {
    return Buffer.from(this.bytes).toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
  }
}

function toNative (field, depth) {
  if (depth > 64) throw invalid('tuples are nested more than 64 deep')
  if (typeof field === 'number') {
    if (Number.isSafeInteger(field) && !Object.is(field, -0)) return BigInt(field)
    return new Double(field)
  }
  if (typeof field === 'string' && !field.isWellFormed()) {
    throw invalid('a field is a string with half of a surrogate pair')
  }
  if (Array.isArray(field)) return field.map((inner) => toNative(inner, depth + 1))
  return field
}

function fromNative (field) {
  if (typeof field === 'bigint') {
    return field >= Number.MIN_SAFE_INTEGER && field <= Number.MAX_SAFE_INTEGER ? Number(field) : field
  }
  if (Array.isArray(field)) return field.map(fromNative)
  switch (field?.tag) {
    case TAGS.float: return new Float(field.bytes)
    case TAGS.double: return new Double(field.bytes)
    case TAGS.uuid: return new Uuid(field.bytes)
    default: return field
  }
}

/** Encodes fields. */
function pack (fields) {
  if (!Array.isArray(fields)) throw invalid('a tuple is an array of fields')
  return native.packTuple(toNative(fields, 0))
}

/** Decodes a key. Integers come back as numbers if they are safe, and otherwise as bigints. */
function unpack (key) {
  if (!isUint8Array(key)) throw invalid('an encoded tuple is a Uint8Array')
  return fromNative(native.unpackTuple(key))
}

module.exports = { pack, unpack, Float, Double, Uuid }
