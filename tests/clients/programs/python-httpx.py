import asyncio
import ssl

import httpx

from check import CA, HELLO, HTTP, HTTPS, PROXY, check, same, served_by_gateway

print("version", httpx.__version__)
options = {"proxy": PROXY, "verify": ssl.create_default_context(cafile=CA), "timeout": 20, "trust_env": False}


async def several(url):
    async with httpx.AsyncClient(**options) as client:
        for response in await asyncio.gather(*(client.get(url) for _ in range(20))):
            same(HELLO, response.text)


with httpx.Client(**options) as client:
    with check("http", "GET"):
        response = client.get(HTTP + "/")
        same(HELLO, response.text)
        served_by_gateway(response.headers)
    with check("http", "POST from an iterator"):
        response = client.post(HTTP + "/echo", content=iter([b"some ", b"words"]))
        same((b"some words", "chunked"), (response.content, response.headers["X-Framing"]))
    with check("https", "GET"):
        same(HELLO, client.get(HTTPS + "/").text)
    with check("https", "POST"):
        same(b"some words", client.post(HTTPS + "/echo", content=b"some words").content)
with check("http", "AsyncClient, 20 at once"):
    asyncio.run(several(HTTP + "/"))
with check("https", "AsyncClient, 20 at once"):
    asyncio.run(several(HTTPS + "/"))
