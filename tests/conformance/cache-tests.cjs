// Runs http-cache-tests against BASE with undici's fetch, through PROXY if there is one, and prints the verdicts:
// {"test id": true | [kind, message]}. Its own command line is not used: node-fetch, which it brings, closes the
// connection after each request, and Node's own fetch knows nothing of proxies.

const { Agent, ProxyAgent, fetch } = require('undici')
const { pathToFileURL } = require('node:url')

const load = path => import(pathToFileURL(require.resolve(`http-cache-tests/${path}`)))
const { BASE, PROXY } = process.env
// Plain http is to be forwarded, as HTTP_PROXY means it, not tunneled.
const dispatcher = PROXY ? new ProxyAgent({ uri: PROXY, proxyTunnel: false }) : new Agent()

async function main () {
  const { runTests, getResults } = await load('client/runner.mjs')
  const { default: suites } = await load('tests/index.mjs')
  const { default: surrogate } = await load('tests/surrogate-control.mjs')
  // The tests reuse one object of options; each request gets its own.
  await runTests([...suites, surrogate], (url, options) => fetch(url, { ...options, dispatcher }), false, BASE)
  console.log(JSON.stringify(getResults()))
  process.exit()
}

main()
