"""For the clients in Python: where things are, and one line per check."""

import os

PROXY, CA, SCRATCH = os.environ["PROXY"], os.environ["CA"], os.environ["SCRATCH"]
HTTP, HTTPS = "http://" + os.environ["ORIGIN"], "https://" + os.environ["ORIGIN"]
HELLO = "hello from the origin\n"


class check:
    """`with check("http", "GET"): …` passes when nothing is raised inside."""

    def __init__(self, column, name):
        self.what = f"{column} {name}"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            print("pass", self.what, flush=True)
        else:
            print("fail", f"{self.what}: {kind.__name__}: {error}".replace("\n", " "), flush=True)
        return error is None or isinstance(error, Exception)


def same(wanted, got):
    assert wanted == got, f"wanted {str(wanted)[:200]!r}, got {str(got)[:200]!r}"


def served_by_gateway(headers):
    got = headers.get("Proxy-Status") or ""
    assert got.startswith("evenkeel; next-hop="), f"Proxy-Status is {got!r}"
