"""A certificate authority for one run, and the origin's certificate signed by it (openssl on the command line)."""

import subprocess

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def make(folder, name):
    """Returns the paths of the authority's certificate and of `name`'s chain with its private key."""
    ca, ca_key, chain = folder / "ca.pem", folder / "ca.key", folder / "origin.pem"
    leaf, leaf_key = folder / "leaf.pem", folder / "leaf.key"
    _openssl("-x509", *KEY, "-days", "2", "-subj", "/CN=evenkeel tests CA", "-keyout", ca_key, "-out", ca)
    # OpenSSL's defaults make every certificate an authority's; strict clients (Java, Go) want a leaf.
    _openssl(
        "-x509", *KEY, "-days", "2", "-subj", f"/CN={name}", "-CA", ca, "-CAkey", ca_key,
        "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth",
        "-addext", f"subjectAltName=DNS:{name}", "-keyout", leaf_key, "-out", leaf,
    )  # fmt: skip
    chain.write_bytes(leaf_key.read_bytes() + leaf.read_bytes() + ca.read_bytes())
    return ca, chain


def _openssl(*arguments):
    done = subprocess.run(["openssl", "req", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"openssl req: {done.stderr}")
