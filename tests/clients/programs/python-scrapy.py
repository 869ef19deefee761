# deadline: 90
"""A small spider with Scrapy's own downloader; the proxy comes as request.meta and by the environment."""

import os

import scrapy
import scrapy.crawler

from check import HELLO, HTTP, HTTPS, PROXY, check, same, served_by_gateway

print("version", scrapy.__version__)
os.environ |= {"http_proxy": PROXY, "https_proxy": PROXY}


class Spider(scrapy.Spider):
    name = "evenkeel"
    # Scrapy does not verify certificates unless it is told to.
    custom_settings = {"LOG_LEVEL": "ERROR", "RETRY_ENABLED": False, "TELNETCONSOLE_ENABLED": False, "DOWNLOAD_TIMEOUT": 20}

    async def start(self):
        for column, base in (("http", HTTP), ("https", HTTPS)):
            for name, path, meta in (
                ("http_proxy", "/", {}),
                ("meta proxy", "/?meta", {"proxy": PROXY}),
                ("redirect", "/redirect", {}),
                ("POST", "/echo", {}),
            ):
                method = "POST" if path == "/echo" else "GET"
                given = {"body": b"some words", "method": method} if method == "POST" else {}
                yield scrapy.Request(
                    base + path, meta=meta, callback=self.parse, errback=self.failed, dont_filter=True,
                    cb_kwargs={"column": column, "case": name}, **given,
                )  # fmt: skip

    def parse(self, response, column, case):
        wanted = {"meta proxy": HELLO[:-1] + " /?meta\n", "POST": "some words"}.get(case, HELLO)
        with check(column, case):
            same(wanted, response.text)
            if column == "http":
                served_by_gateway({"Proxy-Status": response.headers.get("Proxy-Status", b"").decode()})

    def failed(self, failure):
        given = failure.request.cb_kwargs
        with check(given["column"], given["case"]):
            raise failure.value


process = scrapy.crawler.CrawlerProcess()
process.crawl(Spider)
process.start()
