'use strict'

const { ANY, checkInteger, checkOptions } = require('./error')
const { call } = require('./native')

const OPTIONS = { after: 'number', wait: ANY, signal: ANY }
// How long a call waits for a commit: close() waits for it.
const SLICE = 200

/** The commits after a commit, as they happen. Each loop over it begins at the same commit. */
class Feed {
  #db
  #native
  #options

  constructor (db, native, options) {
    this.#db = db
    this.#native = native
    this.#options = checkOptions(options, OPTIONS, 'feed')
    if (this.#options.after !== undefined) checkInteger(this.#options.after, 0, 'after')
  }

  async * [Symbol.asyncIterator] () {
    const { after = this.#db.newestCommit, wait = true, signal } = this.#options
    this.#db.checkOpen()
    const reader = this.#native.feed(after)
    // Closing ends the loop.
    while (!signal?.aborted && this.#db.isOpen) {
      const commit = await call(this.#db, (number) => reader.next(number, wait ? SLICE : 0))
      if (commit !== undefined) yield commit
      else if (!wait) return
    }
  }
}

module.exports = { Feed }
