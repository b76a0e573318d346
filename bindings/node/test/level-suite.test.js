'use strict'

// The suite of abstract-level, from its package, on EskerLevel.

const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const path = require('node:path')
const test = require('tape')
const suite = require('abstract-level/test')
const { EskerLevel } = require('../level')

const base = mkdtempSync(path.join(tmpdir(), 'esker-level-'))
let made = 0

suite({
  test,
  factory (options) {
    return new EskerLevel(path.join(base, String(made++)), options)
  }
})

test.onFinish(() => rmSync(base, { recursive: true, force: true }))
