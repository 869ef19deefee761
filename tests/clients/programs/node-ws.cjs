// WebSockets of the `ws` package: ws:// as an absolute-form upgrade and by CONNECT, wss:// by CONNECT.
const { once } = require('node:events')
const { HttpProxyAgent } = require('http-proxy-agent')
const { HttpsProxyAgent } = require('https-proxy-agent')
const WebSocket = require('ws')
const { PROXY, HTTP, HTTPS, ca, check, same, servedByGateway, version } = require('../check.cjs')

console.log('version', version('ws'))

async function echo (url, agent) {
  const socket = new WebSocket(url, { agent, ca, handshakeTimeout: 20000, perMessageDeflate: false })
  const upgrade = once(socket, 'upgrade')
  await once(socket, 'open')
  for (const sent of ['short', 'x'.repeat(100000)]) {
    socket.send(sent)
    same(sent, (await once(socket, 'message'))[0])
  }
  socket.ping('beat')
  same('beat', (await once(socket, 'pong'))[0])
  socket.close(1000)
  same('1000', (await once(socket, 'close'))[0])
  return (await upgrade)[0].headers
}

async function main () {
  const ws = url => url.replace('http', 'ws') + '/ws'
  await check('ws', 'ws forwarded', async () => servedByGateway((await echo(ws(HTTP), new HttpProxyAgent(PROXY)))['proxy-status']))
  await check('ws', 'ws by CONNECT', () => echo(ws(HTTP), new HttpsProxyAgent(PROXY)))
  await check('ws', 'wss', () => echo(ws(HTTPS), new HttpsProxyAgent(PROXY)))
  await check('ws', 'ws refused', async () => {
    const socket = new WebSocket(HTTP.replace('http', 'ws') + '/', { agent: new HttpProxyAgent(PROXY) })
    const [error] = await once(socket, 'error')
    same('Unexpected server response: 200', error.message)
  })
}

main()
