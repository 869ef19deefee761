"""urllib.request, by its ProxyHandler and by the environment."""

import os
import platform
import ssl
import urllib.request

from check import CA, HELLO, HTTP, HTTPS, PROXY, check, same, served_by_gateway

print("version", platform.python_version())
tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=CA))
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": PROXY, "https": PROXY}), tls)

with check("http", "ProxyHandler"), opener.open(HTTP + "/", timeout=20) as response:
    same(HELLO, response.read().decode())
    served_by_gateway(response.headers)
with check("http", "POST"), opener.open(HTTP + "/echo", data=b"some words", timeout=20) as response:
    same(b"some words", response.read())
with check("https", "ProxyHandler"), opener.open(HTTPS + "/", timeout=20) as response:
    same(HELLO, response.read().decode())
os.environ |= {"http_proxy": PROXY, "https_proxy": PROXY}
opener = urllib.request.build_opener(tls)
with check("http", "http_proxy"), opener.open(HTTP + "/", timeout=20) as response:
    same(HELLO, response.read().decode())
with check("https", "https_proxy"), opener.open(HTTPS + "/", timeout=20) as response:
    same(HELLO, response.read().decode())
