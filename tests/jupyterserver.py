"""A real Jupyter server on the loopback, for as long as a `with` block lasts."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import NamedTuple

PATIENCE = 120.0


class Server(NamedTuple):
    url: str
    token: str
    process: subprocess.Popen

    def kernels(self):
        """The ids of its kernels, as it tells them."""
        import json

        with self._ask("api/kernels") as answer:
            return [entry["id"] for entry in json.load(answer)]

    def _ask(self, path):
        request = urllib.request.Request(f"{self.url}{path}", headers={"Authorization": f"token {self.token}"})
        return urllib.request.urlopen(request, timeout=30)

    def is_up(self):
        try:
            with self._ask("api/status"):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def kill(self):
        """All of it, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def settings(server):
    """What a user sets to use it."""
    return {"ATOLL_JUPYTER_URL": server.url, "ATOLL_JUPYTER_TOKEN": server.token}


@contextlib.contextmanager
def jupyter_server(*options, **variables):
    """Started as whoever runs the tests, root too."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    token, home = secrets.token_hex(8), tempfile.mkdtemp(prefix="at-", dir="/tmp")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyter_server", "--ServerApp.allow_root=True", "--ServerApp.open_browser=False"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
            *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home}", *options),
        ],
        env={"PATH": os.environ["PATH"], "HOME": home, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=home,
        start_new_session=True,
    )
    server = Server(f"http://127.0.0.1:{port}/", token, process)
    try:
        until = time.monotonic() + PATIENCE
        while not server.is_up():
            assert process.poll() is None, "the Jupyter server did not start"
            assert time.monotonic() < until, "the Jupyter server did not start in time"
            time.sleep(0.1)
        yield server
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)
