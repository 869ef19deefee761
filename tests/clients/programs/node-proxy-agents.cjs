// http-proxy-agent and https-proxy-agent, the agents most Node programs use.
const http = require('node:http')
const https = require('node:https')
const { HttpProxyAgent } = require('http-proxy-agent')
const { HttpsProxyAgent } = require('https-proxy-agent')
const { PROXY, HTTP, HTTPS, HELLO, ca, check, same, servedByGateway, version } = require('../check.cjs')

console.log('version', version('https-proxy-agent'))

function send (url, agent, body) {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? 'GET' : 'POST'
    const module = url.startsWith('https:') ? https : http
    const request = module.request(url, { agent, method, ca, timeout: 20000 }, async response => {
      const parts = []
      for await (const part of response) parts.push(part)
      resolve({ headers: response.headers, text: Buffer.concat(parts).toString() })
    })
    request.on('error', reject).on('timeout', () => request.destroy(new Error('timed out'))).end(body)
  })
}

async function main () {
  for (const keepAlive of [false, true]) {
    const kind = keepAlive ? 'kept alive' : 'closed'
    const forwarding = new HttpProxyAgent(PROXY, { keepAlive })
    const tunneling = new HttpsProxyAgent(PROXY, { keepAlive })
    await check('http', `GET, ${kind}`, async () => {
      for (let number = 0; number < 5; number++) {
        const { text, headers } = await send(`${HTTP}/`, forwarding)
        same(HELLO, text)
        servedByGateway(headers['proxy-status'])
      }
    })
    await check('http', `POST, ${kind}`, async () => same('some words', (await send(`${HTTP}/echo`, forwarding, 'some words')).text))
    await check('https', `GET, ${kind}`, async () => {
      for (let number = 0; number < 5; number++) same(HELLO, (await send(`${HTTPS}/`, tunneling)).text)
    })
    await check('https', `http by CONNECT, ${kind}`, async () => same(HELLO, (await send(`${HTTP}/`, tunneling)).text))
    forwarding.destroy()
    tunneling.destroy()
  }
}

main()
