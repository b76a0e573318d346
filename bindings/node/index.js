'use strict'

exports.Db = require('./lib/db').Db
exports.tuple = require('./lib/tuple')
