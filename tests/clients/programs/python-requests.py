# quick: yes
import os

import requests

from check import CA, HELLO, HTTP, HTTPS, PROXY, check, same, served_by_gateway

print("version", requests.__version__)
session = requests.Session()
session.proxies, session.verify, session.trust_env = {"http": PROXY, "https": PROXY}, CA, False


def pieces():
    for number in range(50):
        yield b"piece %d\n" % number


with check("http", "GET"):
    response = session.get(HTTP + "/", timeout=20)
    same(HELLO, response.text)
    served_by_gateway(response.headers)
with check("http", "HEAD"):
    same("22", session.head(HTTP + "/", timeout=20).headers["Content-Length"])
with check("http", "20 requests of one session"):
    for number in range(20):
        same(f"hello from the origin /?{number}\n", session.get(f"{HTTP}/?{number}", timeout=20).text)
with check("http", "POST from a generator"):
    response = session.post(HTTP + "/echo", data=pieces(), timeout=20)
    same(b"".join(pieces()), response.content)
    same("chunked", response.headers["X-Framing"])
with check("http", "redirect"):
    same(HELLO, session.get(HTTP + "/redirect", timeout=20).text)
with check("http", "streamed download"), session.get(HTTP + "/bytes/3000000", stream=True, timeout=20) as response:
    same(3000000, sum(map(len, response.iter_content(8192))))
with check("https", "GET"):
    same(HELLO, session.get(HTTPS + "/", timeout=20).text)
with check("https", "POST from a generator"):
    same(b"".join(pieces()), session.post(HTTPS + "/echo", data=pieces(), timeout=20).content)
os.environ |= {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY}
with check("http", "HTTP_PROXY"):
    served_by_gateway(requests.get(HTTP + "/", timeout=20).headers)
with check("https", "HTTPS_PROXY"):
    same(HELLO, requests.get(HTTPS + "/", verify=CA, timeout=20).text)
