'use strict'

const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const path = require('node:path')
const { Db } = require('..')

/** A directory that is removed after the test, when `before` is done. */
function directory (t, before) {
  const dir = mkdtempSync(path.join(tmpdir(), 'esker-node-'))
  t.after(async () => {
    await before?.()
    rmSync(dir, { recursive: true, force: true })
  })
  return path.join(dir, 'db')
}

/** A database in a directory of its own, which is checked and closed after the test. */
async function open (t, options) {
  let db = null
  const dir = directory(t, async () => {
    if (!db?.isOpen) return
    await db.check()
    await db.close()
  })
  db = await Db.open(dir, options)
  return db
}

module.exports = { directory, open, Db }
