"""Upstream proxies for the gateway's pool: they forward absolute-form requests, tunnel CONNECT, and count both.

Client connections are kept alive, so that the gateway's reuse of them is exercised; connections to origins are
not. Bodies are copied as they are framed, 1xx answers and upgrades pass. Names resolve by a table of their own;
beside it only literal loopback addresses are dialed. Not here: anything a careful proxy does about bad messages.
"""

import asyncio
import contextlib
import threading
from urllib.parse import urlsplit

COPY = 64 * 1024
HEAD_LIMIT = 1024 * 1024
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "proxy-authorization", "te"}


class Upstreams:
    """`count` upstream proxies in one thread. `names` maps (host, port) to the address really dialed."""

    def __init__(self, count, names):
        self.names = names
        self.urls = []
        self._servers = []
        self._connections = set()
        self.forwarded = [0] * count
        self.tunneled = [0] * count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for number in range(count):
            asyncio.run_coroutine_threadsafe(self._listen(number), self._loop).result()

    def counts(self):
        """How many requests each of them has had, of both kinds."""
        return [forwarded + tunneled for forwarded, tunneled in zip(self.forwarded, self.tunneled)]

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _hang_up(self):
        for server in self._servers:
            server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _listen(self, number):
        async def serve(reader, writer):
            # asyncio itself would let go of a task that waits for an origin only.
            self._connections.add(asyncio.current_task())
            # A peer that goes away in the middle ends this connection, and is its own affair.
            gone = (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError)
            with contextlib.suppress(*gone):
                while await self._exchange(number, reader, writer):
                    pass
            writer.close()
            self._connections.discard(asyncio.current_task())

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_LIMIT)
        self._servers.append(server)
        self.urls.append("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1])

    async def _exchange(self, number, reader, writer):
        """One request; true when the connection can carry another."""
        request = await Head.read(reader)
        method, target, version = request.start
        is_tunnel = method == "CONNECT"
        (self.tunneled if is_tunnel else self.forwarded)[number] += 1
        parts = urlsplit(f"//{target}" if is_tunnel else target)
        try:
            origin = await self._dial(parts.hostname, parts.port or 80)
        except OSError as error:
            text = f"{target}: {error}\n".encode()
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text) + text)
            await writer.drain()
            return False
        if is_tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await both_ways((reader, writer), origin)
            return False
        request.start = [method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), version]
        return await forward(request, (reader, writer), origin)

    async def _dial(self, host, port):
        if (host, port) in self.names:
            host, port = self.names[host, port]
        elif host not in ("127.0.0.1", "::1"):
            raise OSError("this name is not known here")
        return await asyncio.open_connection(host, port, limit=HEAD_LIMIT)


class Head:
    """A start line and header fields, in the order they came."""

    def __init__(self, start, fields):
        self.start, self.fields = start, fields

    @classmethod
    async def read(cls, reader):
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        return cls(start.split(" ", 2), [tuple(line.split(":", 1)) for line in lines])

    def values(self, name):
        return [part.strip().lower() for key, value in self.fields if key.lower() == name for part in value.split(",")]

    def write(self, writer, *more):
        """Without the fields that were meant for this hop; `more` are fields for the next."""
        dropped = HOP_BY_HOP | set(self.values("connection"))
        kept = [f"{key}:{value}" for key, value in self.fields if key.lower() not in dropped]
        writer.write("\r\n".join([" ".join(self.start), *kept, *more, "", ""]).encode("latin-1"))

    def framing(self):
        """How the body ends: "chunked", a length, or None when the head does not say."""
        if "chunked" in self.values("transfer-encoding"):
            return "chunked"
        length = self.values("content-length")
        return int(length[0]) if length else None


async def forward(request, client, origin):
    method, upgrade = request.start[0], request.values("upgrade")
    ask = [f"Connection: Upgrade\r\nUpgrade: {upgrade[0]}" if upgrade else "Connection: close"]
    request.write(origin[1], *ask)
    upload = asyncio.ensure_future(copy_body(client[0], origin[1], request.framing() or 0))
    upload.add_done_callback(lambda upload: is_client_gone(upload) and origin[1].close())
    try:
        while True:
            response = await Head.read(origin[0])
            status = int(response.start[1])
            if status == 101:
                response.write(client[1], "Connection: Upgrade", f"Upgrade: {upgrade[0]}")
                await both_ways(client, origin)
                return False
            if status >= 200:
                break
            response.write(client[1])
        framing = 0 if method == "HEAD" or status in (204, 304) else response.framing()
        is_last = framing is None or "close" in request.values("connection") or not upload.done()
        response.write(client[1], *(["Connection: close"] if is_last else []))
        await copy_body(origin[0], client[1], framing)
        return not is_last
    finally:
        upload.cancel()
        await asyncio.wait([upload])
        upload.cancelled() or upload.exception()  # looked at: an origin that answers early may reset the rest
        origin[1].close()


def is_client_gone(upload):
    return not upload.cancelled() and isinstance(upload.exception(), EOFError)


async def copy_body(reader, writer, framing):
    if framing == "chunked":
        while size := int((line := await pass_line(reader, writer)).split(b";")[0], 16):
            await copy(reader, writer, size + 2)
        while line.strip():  # trailers, up to the empty line
            line = await pass_line(reader, writer)
    else:
        await copy(reader, writer, framing)
    await writer.drain()


async def pass_line(reader, writer):
    line = await reader.readuntil(b"\n")
    writer.write(line)
    return line


async def copy(reader, writer, length):
    """`length` bytes; None: all there are until the sender ends."""
    while length != 0:
        data = await reader.read(COPY if length is None else min(COPY, length))
        if not data:
            if length is None:
                return
            raise EOFError("the body ended early")
        writer.write(data)
        await writer.drain()
        length = length and length - len(data)


async def both_ways(one, other):
    async def way(reader, writer):
        await copy(reader, writer, None)
        writer.write_eof()

    ways = [asyncio.ensure_future(way(one[0], other[1])), asyncio.ensure_future(way(other[0], one[1]))]
    try:
        await asyncio.gather(*ways)
    finally:
        for task in ways:
            task.cancel()
        other[1].close()
