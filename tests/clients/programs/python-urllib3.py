import urllib3

from check import CA, HELLO, HTTP, HTTPS, PROXY, check, same, served_by_gateway

print("version", urllib3.__version__)
manager = urllib3.ProxyManager(PROXY, ca_certs=CA, timeout=20, retries=False)

with check("http", "GET"):
    response = manager.request("GET", HTTP + "/")
    same(HELLO, response.data.decode())
    served_by_gateway(response.headers)
with check("http", "POST chunked"):
    response = manager.request("POST", HTTP + "/echo", body=iter([b"some ", b"words"]), chunked=True)
    same((b"some words", "chunked"), (response.data, response.headers["X-Framing"]))
with check("http", "chunked answer"):
    same(b"one two three\n", b"".join(manager.request("GET", HTTP + "/chunked", preload_content=False).stream()))
with check("https", "GET"):
    same(HELLO, manager.request("GET", HTTPS + "/").data.decode())
with check("https", "50 requests"):
    for _ in range(50):
        same(HELLO, manager.request("GET", HTTPS + "/").data.decode())
