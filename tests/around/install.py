"""Pinned Python and npm packages, installed once into a cache folder outside the checkout.

A folder is named after the hash of the files that pin its content; a mark inside says that it is complete.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenkeel-tests"
DEADLINE = 300  # seconds, for one installation


class Unavailable(Exception):
    """Why the packages could not be installed."""


def python(requirements):
    """Returns the interpreter of an environment that holds `requirements`."""

    def fill(folder):
        venv.create(folder, with_pip=True)
        _run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "--requirement", requirements])  # fmt: skip

    return _cached("python", [requirements], fill, sys.version) / "bin" / "python"


def node(package):
    """Returns the node_modules folder of `package`, a folder with package.json and package-lock.json."""
    pins = [package / "package.json", package / "package-lock.json"]

    def fill(folder):
        for pin in pins:
            shutil.copy(pin, folder)
        _run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder)

    return _cached("node", pins, fill) / "node_modules"


def _cached(kind, pins, fill, *more):
    digest = hashlib.sha256("".join([*(pin.read_text() for pin in pins), *more]).encode()).hexdigest()
    folder = CACHE / f"{kind}-{digest[:12]}"
    complete = folder / ".complete"
    if not complete.exists():
        # In place, since an environment's scripts carry its path; the mark says that it came to its end.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fill(folder)
        complete.touch()
    return folder


def _run(command, **options):
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, **options)
    except FileNotFoundError:
        raise Unavailable(f"{name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{name} did not finish within {DEADLINE} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise Unavailable(f"{name}: {last}")
