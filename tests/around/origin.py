"""The origin real programs talk to: http, https and WebSocket, a git server and a folder of files.

    /            "hello from the origin", its path and query appended when there are any
    /echo        the request's body; X-Method, X-Framing (chunked, length or none) and X-Continue say how it came
    /bytes/N     N bytes of BYTES, repeated
    /chunked     three chunks
    /redirect    302 to /
    /refuse      413 at once, the body not read
    /page        a page whose script fetches, posts and opens a WebSocket, then writes down what it got
    /ws          a WebSocket that echoes (RFC 6455)
    /git/…       git's own http-backend over `folder`/git
    /files/…     `folder`/files as it is
"""

import base64
import hashlib
import http.server
import os
import shutil
import ssl
import struct
import subprocess
import threading
from urllib.parse import unquote

HELLO = "hello from the origin"
BYTES = b"0123456789abcdef"
BLOCK = BYTES * 4096
WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

PAGE = """<!doctype html><title>evenkeel</title><pre id=result></pre><script>
const line = text => result.textContent += text + "\\n";
(async () => {
  line("get: " + await (await fetch("/?from=page")).text());
  line("post: " + await (await fetch("/echo", {method: "POST", body: "posted"})).text());
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/ws");
  socket.onmessage = event => { line("ws: " + event.data); socket.close(); };
  socket.onopen = () => socket.send("sent");
  socket.onclose = () => line("done");
})().catch(error => line("failed: " + error) + line("done"));
</script>
"""


class Origin:
    """Two listeners, `http` and `https` (port numbers), each connection a thread."""

    def __init__(self, chain, folder):
        self._servers = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        # Without ALPN a careful client still speaks HTTP/1.1, and no other is spoken here.
        self.http = self._listen(folder, None)
        self.https = self._listen(folder, context)

    def _listen(self, folder, tls):
        handler = type("Handler", (Handler,), {"folder": folder})
        server = Server(("127.0.0.1", 0), handler)
        if tls:
            # The handshake comes with the first read, in the connection's own thread.
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._servers.append(server)
        return server.server_address[1]

    def stop(self):
        for server in self._servers:
            server.shutdown()
            server.server_close()


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256

    def handle_error(self, request, client_address):
        """A client that breaks off, or does not trust the certificate, is no news here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    said_continue = False

    def log_message(self, format, *arguments):
        pass

    def handle_expect_100(self):
        # Only when the body is wanted: `/refuse` answers first.
        self.said_continue = True
        return True

    def handle_one_request(self):
        self.said_continue = False
        super().handle_one_request()

    def any_method(self):
        path, _, query = self.path.partition("?")
        section = path.split("/")[1]
        if section == "ws" and "upgrade" in self.headers:
            return self.websocket()
        if section == "refuse":
            self.close_connection = True
            return self.answer(413, b"too much\n", {"Connection": "close"})
        body = self.body()
        if section == "":
            return self.answer(200, (f"{HELLO} {self.path}" if query else HELLO).encode() + b"\n")
        if section == "echo":
            said = {"X-Method": self.command, "X-Framing": self.framing(), "X-Continue": str(self.said_continue).lower()}
            return self.answer(200, body, said)
        if section == "bytes":
            return self.bytes(int(path.split("/")[2]))
        if section == "chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            return self.wfile.write(b"4\r\none \r\n4\r\ntwo \r\n6\r\nthree\n\r\n0\r\n\r\n")
        if section == "redirect":
            return self.answer(302, b"", {"Location": "/"})
        if section == "page":
            return self.answer(200, PAGE.encode(), {"Content-Type": "text/html; charset=utf-8"})
        if section == "git":
            return self.git(path.removeprefix("/git"), query, body)
        if section == "files":
            return self.file(path.removeprefix("/files/"))
        return self.answer(404, b"no such page\n")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = any_method

    def answer(self, status, body, fields={}):
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", "Content-Length": str(len(body)), **fields}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def bytes(self, count):
        self.answer(200, b"", {"Content-Length": str(count)})
        while count and self.command != "HEAD":
            count -= self.wfile.write(BLOCK[:count])

    def framing(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return "chunked"
        return "length" if "Content-Length" in self.headers else "none"

    def body(self):
        if self.said_continue:
            self.send_response_only(100)
            self.end_headers()
        if self.framing() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return whole

    def file(self, name):
        path = self.folder / "files" / unquote(name)
        if path.is_dir():
            path = path / "index.html"
        if ".." in path.parts or not path.is_file():
            return self.answer(404, b"no such file\n")
        kind = "text/html" if path.suffix == ".html" else "application/octet-stream"
        return self.answer(200, path.read_bytes(), {"Content-Type": kind})

    def git(self, path, query, body):
        """CGI (RFC 3875), as far as git's http-backend needs it."""
        given = {
            "GIT_PROJECT_ROOT": str(self.folder / "git"), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "anybody",
            "REMOTE_ADDR": "127.0.0.1", "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "PATH": os.environ["PATH"],
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=given)
        head, _, page = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.answer(int(fields.pop("Status", "200").split()[0]), page, fields)

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"].encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + WEBSOCKET).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while len(start := self.rfile.read(2)) == 2:
            kind, size = start[0] & 0x0F, start[1] & 0x7F
            if size > 125:
                size = struct.unpack("!H" if size == 126 else "!Q", self.rfile.read(2 if size == 126 else 8))[0]
            mask = self.rfile.read(4) if start[1] & 0x80 else bytes(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            if kind in (0, 1, 2, 8, 9):  # echoed as it came; a ping as a pong, a close as a close
                first = start[0] & 0xF0 | (10 if kind == 9 else kind)
                length = bytes([size]) if size < 126 else struct.pack("!BH" if size < 65536 else "!BQ", 126 + (size > 65535), size)
                self.wfile.write(bytes([first]) + length + data)
            if kind == 8:
                return


def fill(folder):
    """An empty folder of each kind, and a git repository with one commit that may be pushed to."""
    (folder / "files").mkdir()
    bare, work = folder / "git" / "sample.git", folder / "work"
    git = ["git", "-c", "user.name=evenkeel", "-c", "user.email=evenkeel@example.invalid"]
    subprocess.run([*git, "init", "--quiet", "--bare", "--initial-branch=main", bare], check=True)
    subprocess.run([*git, "-C", bare, "config", "http.receivepack", "true"], check=True)
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main", work], check=True)
    (work / "README").write_text(HELLO + "\n")
    (work / "large").write_bytes(os.urandom(1 << 20))
    subprocess.run([*git, "-C", work, "add", "."], check=True)
    subprocess.run([*git, "-C", work, "commit", "--quiet", "--message", "Say hello"], check=True)
    subprocess.run([*git, "-C", work, "push", "--quiet", bare, "main"], check=True)
    shutil.rmtree(work)
