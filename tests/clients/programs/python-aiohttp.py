import asyncio
import ssl

import aiohttp

from check import CA, HELLO, HTTP, HTTPS, PROXY, check, same, served_by_gateway

print("version", aiohttp.__version__)


async def pieces():
    for number in range(50):
        yield b"piece %d\n" % number


async def echo(session, url):
    async with session.ws_connect(url, proxy=PROXY) as socket:
        for text in ("short", "x" * 100_000):
            await socket.send_str(text)
            same(text, await socket.receive_str(timeout=10))
        await socket.close()
        same(1000, socket.close_code)


async def main():
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=CA))
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(20)) as session:
        with check("http", "GET"):
            async with session.get(HTTP + "/", proxy=PROXY) as response:
                same(HELLO, await response.text())
                served_by_gateway(response.headers)
        with check("http", "POST from a generator"):
            async with session.post(HTTP + "/echo", data=pieces(), proxy=PROXY) as response:
                same(b"".join([piece async for piece in pieces()]), await response.read())
                same("chunked", response.headers["X-Framing"])
        with check("http", "Expect, 100-continue"):
            async with session.post(HTTP + "/echo", data=b"some words", expect100=True, proxy=PROXY) as response:
                same((b"some words", "true"), (await response.read(), response.headers["X-Continue"]))
        with check("https", "GET"):
            async with session.get(HTTPS + "/", proxy=PROXY) as response:
                same(HELLO, await response.text())
        with check("https", "20 at once"):

            async def get():
                async with session.get(HTTPS + "/", proxy=PROXY) as response:
                    same(HELLO, await response.text())

            await asyncio.gather(*(get() for _ in range(20)))
        with check("ws", "ws"):
            await echo(session, HTTP + "/ws")
        with check("ws", "wss"):
            await echo(session, HTTPS + "/ws")


asyncio.run(main())
