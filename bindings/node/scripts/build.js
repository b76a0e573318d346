'use strict'

// Builds the addon and puts it beside index.js: node scripts/build.js [--release]

const { execFileSync } = require('node:child_process')
const { copyFileSync, renameSync } = require('node:fs')
const path = require('node:path')

const here = path.join(__dirname, '..')
const release = process.argv.includes('--release')
const build = ['build', '-p', 'esker-node', '--message-format', 'json-render-diagnostics']
if (release) build.push('--release')
const stdio = ['ignore', 'pipe', 'inherit']
const made = execFileSync('cargo', build, { cwd: here, stdio, maxBuffer: 1 << 28 })
const files = made.toString().split('\n').filter((line) => line.startsWith('{'))
  .map((line) => JSON.parse(line))
  .filter((message) => message.reason === 'compiler-artifact' && message.target.name === 'esker_node')
  .flatMap((message) => message.filenames)
  .filter((file) => /\.(so|dylib|dll)$/.test(file))
const addon = path.join(here, 'esker.node')
// A process that has the old file mapped keeps it.
copyFileSync(files[0], `${addon}.new`)
renameSync(`${addon}.new`, addon)
console.log(path.relative(process.cwd(), addon))
