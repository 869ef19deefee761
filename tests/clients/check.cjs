// For the clients in Node: where things are, and one line per check.

const { readFileSync } = require('node:fs')
const path = require('node:path')
const assert = require('node:assert')

const { PROXY, ORIGIN, CA, SCRATCH } = process.env

async function check (column, name, body) {
  try {
    await body()
    console.log(`pass ${column} ${name}`)
  } catch (error) {
    const why = `${error.message} ${error.cause?.message ?? ''}`
    console.log(`fail ${column} ${name}: ${why.replaceAll('\n', ' ')}`)
  }
}

function servedByGateway (value) {
  assert.match(String(value), /^evenkeel; next-hop=/, `Proxy-Status is ${value}`)
}

// Of an installed package; not every one lets its package.json be required.
const version = name => JSON.parse(readFileSync(path.join(process.env.NODE_PATH, name, 'package.json'))).version

module.exports = {
  PROXY,
  SCRATCH,
  HTTP: `http://${ORIGIN}`,
  HTTPS: `https://${ORIGIN}`,
  HELLO: 'hello from the origin\n',
  ca: readFileSync(CA),
  check,
  same: (wanted, got) => assert.strictEqual(String(got), wanted),
  servedByGateway,
  version
}
