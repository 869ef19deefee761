// needs: chromium
// debian: chromium
// deadline: 120
const { execFileSync } = require('node:child_process')
const crypto = require('node:crypto')
const path = require('node:path')
const { chromium } = require('playwright-core')
const { PROXY, SCRATCH, HTTP, HTTPS, HELLO, ca, check, same, servedByGateway } = require('../check.cjs')

const executablePath = execFileSync('sh', ['-c', 'command -v chromium']).toString().trim()
// Trust in this run's authority and nobody else's: the system's certificate store is not touched.
const key = new crypto.X509Certificate(ca).publicKey.export({ type: 'spki', format: 'der' })
const spki = crypto.createHash('sha256').update(key).digest('base64')

async function main () {
  const browser = await chromium.launchPersistentContext(path.join(SCRATCH, 'profile'), {
    executablePath,
    proxy: { server: PROXY },
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', `--ignore-certificate-errors-spki-list=${spki}`]
  })
  console.log('version', browser.browser()?.version() ?? execFileSync(executablePath, ['--version']).toString().split(' ')[1])
  for (const [column, base] of [['http', HTTP], ['https', HTTPS]]) {
    const page = await browser.newPage()
    page.setDefaultTimeout(20000)
    await check(column, 'page', async () => {
      const response = await page.goto(`${base}/`)
      same(HELLO, await response.text())
      if (column === 'http') servedByGateway(response.headers()['proxy-status'])
    })
    const lines = []
    await check(column, 'fetch', async () => {
      await page.goto(`${base}/page`)
      await page.waitForFunction(() => document.getElementById('result').textContent.endsWith('done\n'))
      lines.push(...(await page.textContent('#result')).split('\n').filter(Boolean))
      same('get: hello from the origin /?from=page,post: posted', lines.slice(0, 2))
    })
    await check('ws', column.replace('http', 'ws'), async () => same('ws: sent,done', lines.slice(2)))
    await check(column, '3 MB download', async () =>
      same('3000000', await page.evaluate(async () => (await (await fetch('/bytes/3000000')).arrayBuffer()).byteLength)))
    await page.close()
  }
  await browser.close()
}

main()
