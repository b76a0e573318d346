'use strict'

// The example of the README does what it says.

const test = require('node:test')
const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { directory } = require('./common')

test('the example of the README', (t) => {
  const readme = readFileSync(path.join(__dirname, '../README.md'), 'utf8')
  const example = readme.match(/```js\n(.*?)```/s)[1]
    .replace("'@esker-db/esker'", JSON.stringify(path.join(__dirname, '..')))
    .replace("'data'", JSON.stringify(directory(t)))
  const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', example])
  assert.deepEqual([status, stderr.toString()], [0, ''])
  assert.equal(stdout.toString(), '{ age: 7 } undefined\nann { age: 7 }\nbob { age: 8 }\n')
})
