"""The gateway as a process: the built binary, a configuration of its own, stopped by its process id."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTENING = "0A"  # the state in /proc/net/tcp
DEADLINE = 20  # seconds, for starting and for stopping


def binary():
    """EVENKEEL_BIN, or the release build, which is made when it is missing."""
    if given := os.environ.get("EVENKEEL_BIN"):
        return Path(given).resolve()
    path = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "evenkeel"
    if not path.exists():
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    return path


class Gateway:
    """Runs in `folder`, where its config.toml and its log lie, on a free port with the embedded store."""

    def __init__(self, folder, upstreams, config=""):
        folder.mkdir()
        self.log = folder / "gateway.log"
        (folder / "config.toml").write_text(config)
        command = [binary(), "serve", "--config", folder / "config.toml", "--listen", "127.0.0.1:0"]
        for url in upstreams:
            command += ["--proxy", url]
        # The environment beats the file: whatever of the gateway's is set here is not meant for this one.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("EVENKEEL_")}
        with self.log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        line = self._process.stdout.readline()
        found = re.fullmatch(r"listening on (http://(.*):(\d+))\n", line)
        if not found:
            self._process.kill()
            raise RuntimeError(f"the gateway does not listen: {line}{self.log.read_text()}")
        self.url, self.host, self.port = found[1], found[2], int(found[3])
        self.pid = self._process.pid

    def connections(self):
        """How many TCP connections it holds, listeners not counted."""
        return len(self._sockets())

    def clients(self):
        """How many of them came to its port."""
        return sum(local.endswith(f":{self.port:04X}") for local in self._sockets())

    def _sockets(self):
        """The local addresses of its connections (proc(5))."""
        held = set()
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                held |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
        lines = [line.split() for line in Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]]
        return [line[1] for line in lines if line[9] in held and line[3] != LISTENING]

    def stop(self):
        """Asks it to drain; returns what went wrong with the process, or None."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"still running {DEADLINE} s after SIGTERM"
        log = self.log.read_text()
        if "panicked" in log:
            return "it panicked: " + log[log.index("panicked") :][:300]
        return None if code == 0 else f"exit code {code} after SIGTERM"
