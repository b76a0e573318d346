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

/** Refuses options that nothing reads. */
function checkOptions (options, known, what) {
  if (options === undefined) return {}
  if (typeof options !== 'object' || options === null) throw invalid(`the options of ${what} are no object`)
  for (const name of Object.keys(options)) {
    if (!known.has(name)) throw invalid(`${what} has no option ${JSON.stringify(name)}`)
  }
  return options
}

module.exports = { failure, invalid, closed, checkOptions }
