"""The far end of a tunnel through a Jupyter server: run by a Python kernel there, it starts the guest and passes bytes.

It is text, never imported here. `ORDER` is filled in by then. Bytes come as messages of a comm, and go out as such.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from typing import Any

ORDER: dict[str, Any] = {}
PATIENCE = 300.0
LOOK = 5.0
CHUNK = 1 << 18
# A server passes on a thousand messages in a second, unless it is told otherwise, and drops what is more.
MANY = 200
PAUSE = 0.005
# Not a child of the kernel's session: when that is killed, the guest ends by itself, and its files go.
KEEPER = "import shutil, subprocess, sys; subprocess.call(sys.argv[2:]); shutil.rmtree(sys.argv[1], ignore_errors=True)"


class FarEnd:
    def __init__(self, order: dict[str, Any]) -> None:
        self._directory = tempfile.mkdtemp(prefix="atoll-")
        self._comm: Any = None
        self._heard = self._since = time.monotonic()
        self._count = 0
        python = [sys.executable, "-I", "-S"]
        guest = [*python, os.path.join(_unpacked(order["package"]), "atoll", "guest", "__main__.py")]
        line = ["--stream-fds", "0,1", "--config", json.dumps(self._config(order))]
        self._guest = subprocess.Popen(
            [*python, "-c", KEEPER, self._directory, *guest, *line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )

    def _config(self, order: dict[str, Any]) -> dict[str, Any]:
        """Nothing of the server's environment but where programs and kernels are."""
        root = os.path.join(self._directory, "files")
        home = root + order["workdir"]
        temporary = os.path.join(root, "tmp")
        for place in (temporary, home):
            os.makedirs(place, exist_ok=True)
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TMPDIR": temporary,
            "JUPYTER_PATH": os.pathsep.join(importlib.import_module("jupyter_core.paths").jupyter_path()),
        }
        kernel = {"kernel": order["kernel"], "language": order["language"]}
        places = {"workdir": order["workdir"], "root": root, "home": home, "state": os.path.join(root, ".state")}
        return {**places, **kernel, "env": {**env, **order["env"]}, "python": sys.executable}

    def opened(self, comm: Any, _message: Any) -> None:
        """The near end is there."""
        self._comm = comm
        comm.on_msg(self._hear)
        for work in (self._pass_on, self._watch):
            threading.Thread(target=work, daemon=True).start()
        comm.send({"ready": True})

    def _hear(self, message: dict[str, Any]) -> None:
        self._heard = time.monotonic()
        data = message["content"]["data"]
        try:
            if "bytes" in data:
                self._guest.stdin.write(base64.b64decode(data["bytes"]))  # type: ignore[union-attr]
                self._guest.stdin.flush()  # type: ignore[union-attr]
            elif "stop" in data:
                self._stop()
        except OSError:
            pass  # it has ended, and that is told

    def _stop(self) -> None:
        try:
            self._guest.stdin.close()  # type: ignore[union-attr]
        except OSError:
            pass  # it has ended already

    def _pass_on(self) -> None:
        """What the guest says, until it ends."""
        out = self._guest.stdout.fileno()  # type: ignore[union-attr]
        while True:
            data = os.read(out, CHUNK)
            if not data:
                break
            self._comm.send({"bytes": base64.b64encode(data).decode("ascii")})
            self._slow_down()
        self._comm.send({"end": self._guest.wait()})

    def _slow_down(self) -> None:
        """After many messages within a second, have the next ones wait, and be fewer."""
        now = time.monotonic()
        if now - self._since > 1.0:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > MANY:
            time.sleep(PAUSE)

    def _watch(self) -> None:
        """Whoever needs the guest says so now and then."""
        while self._guest.poll() is None:
            time.sleep(LOOK)
            if time.monotonic() - self._heard > PATIENCE:
                self._stop()


def _unpacked(package: str) -> str:
    """The guest's source, in a directory that the next one finds, with all of it compiled."""
    content = base64.b64decode(package)
    parent = os.path.join(os.path.expanduser("~"), ".cache", "atoll")
    place = os.path.join(parent, "guest-" + hashlib.sha256(content).hexdigest()[:16])
    if os.path.isdir(place):
        return place
    os.makedirs(parent, mode=0o700, exist_ok=True)
    draft = tempfile.mkdtemp(dir=parent)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(draft)
    try:
        os.rename(draft, place)
    except OSError:
        shutil.rmtree(draft)  # somebody else was faster
    return place


def install() -> None:
    """In the kernel."""
    kernel = importlib.import_module("IPython").get_ipython().kernel
    kernel.comm_manager.register_target(ORDER["target"], FarEnd(ORDER).opened)


if __name__ == "_atoll_far":
    install()
