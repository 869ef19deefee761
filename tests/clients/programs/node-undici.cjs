// quick: yes
const { ProxyAgent, EnvHttpProxyAgent, fetch, request } = require('undici')
const { PROXY, HTTP, HTTPS, HELLO, ca, check, same, servedByGateway, version } = require('../check.cjs')

console.log('version', version('undici'))
const options = { uri: PROXY, requestTls: { ca }, bodyTimeout: 20000, headersTimeout: 20000 }

async function main () {
  // Since version 7 http is tunneled too unless it is told otherwise.
  const forwarding = new ProxyAgent({ ...options, proxyTunnel: false })
  const tunneling = new ProxyAgent({ ...options, proxyTunnel: true })

  await check('http', 'fetch', async () => {
    const response = await fetch(`${HTTP}/`, { dispatcher: forwarding })
    same(HELLO, await response.text())
    servedByGateway(response.headers.get('proxy-status'))
  })
  await check('http', 'POST of a stream', async () => {
    const body = new Blob(['some ', 'words']).stream()
    const response = await fetch(`${HTTP}/echo`, { method: 'POST', body, duplex: 'half', dispatcher: forwarding })
    same('some words', await response.text())
    same('chunked', response.headers.get('x-framing'))
  })
  await check('http', '20 at once', async () => {
    const one = async number => same(`hello from the origin /?${number}\n`,
      await (await request(`${HTTP}/?${number}`, { dispatcher: forwarding })).body.text())
    await Promise.all(Array.from({ length: 20 }, (_, number) => one(number)))
  })
  await check('https', 'fetch', async () =>
    same(HELLO, await (await fetch(`${HTTPS}/`, { dispatcher: tunneling })).text()))
  await check('https', 'http by CONNECT', async () =>
    same(HELLO, await (await fetch(`${HTTP}/`, { dispatcher: tunneling })).text()))
  await check('https', 'POST', async () =>
    same('some words', await (await fetch(`${HTTPS}/echo`, { method: 'POST', body: 'some words', dispatcher: tunneling })).text()))
  await check('https', 'EnvHttpProxyAgent', async () => {
    const agent = new EnvHttpProxyAgent({ ...options, httpProxy: PROXY, httpsProxy: PROXY, noProxy: '' })
    same(HELLO, await (await fetch(`${HTTPS}/`, { dispatcher: agent })).text())
    await agent.close()
  })
  await forwarding.close()
  await tunneling.close()
}

main()
