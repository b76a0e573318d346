'use strict'

/** Makes an error with a code, as those of native code have. */
function failure (code, message) {
  return Object.assign(new Error(message), { code })
}

/** A mistake of the caller. */
function invalid (message) {
  return Object.assign(new TypeError(message), { code: 'ESKER_INVALID' })
}

function closed () {
  return failure('ESKER_CLOSED', 'the database is closed')
}

/** Refuses options that nothing reads. `known` has the types of the others; ANY is checked elsewhere. */
function checkOptions (options, known, what) {
  if (options === undefined) return {}
  if (typeof options !== 'object' || options === null) throw invalid(`the options of ${what} are no object`)
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(known, name)) throw invalid(`${what} has no option ${JSON.stringify(name)}`)
    if (options[name] !== undefined) checkType(options[name], known[name], `the option ${name} of ${what}`)
  }
  return options
}

const ANY = 'any'

/** Refuses an argument of another type. */
function checkType (value, type, what) {
  if (type === ANY || typeof value === type) return value
  throw invalid(`${what} is a ${type}, not ${value === null ? 'null' : `of type ${typeof value}`}`)
}

/** Refuses what is no integer from `least` to `most`. */
function checkInteger (value, least, what, most = Number.MAX_SAFE_INTEGER) {
  if (Number.isInteger(value) && value >= least && value <= most) return value
  throw invalid(`${what} is ${String(value)}: pass an integer from ${least} to ${most}`)
}

function checkArray (value, what) {
  if (Array.isArray(value)) return value
  throw invalid(`${what} are an array`)
}

module.exports = { failure, invalid, closed, checkOptions, checkType, checkInteger, checkArray, ANY }
