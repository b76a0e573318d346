'use strict'

exports.EskerLevel = require('./lib/level').EskerLevel
