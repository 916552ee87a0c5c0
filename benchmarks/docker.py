"""docker run beside a sandbox's create to first result. Installs and starts the engine when it can."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .create import _cell, _first
from .measure import Figure, interleaved, median, milliseconds, run_quietly, say

IMAGE = "atoll-bench"


def _ready(docker: str) -> bool:
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


def _install() -> None:
    for argv in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "-y", "install", "docker.io", "mmdebstrap"]):
        subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def _image(docker: str) -> None:
    """A minimal Debian with Python; nothing can be pulled here."""
    if subprocess.run([docker, "image", "inspect", IMAGE], capture_output=True, check=False).returncode == 0:
        return
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "root.tar"
        release = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
        apt = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
        sources = [str(path) for path in apt if path.is_file() and path.suffix in (".list", ".sources")]
        make = ["mmdebstrap", "--variant=minbase", "--include=python3-minimal", release, str(archive), *sources]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([docker, "import", str(archive), IMAGE], check=True, capture_output=True)


@contextmanager
def engine() -> Iterator[str | None]:
    """The engine's client, with an engine that answers; one that had to be started ends with the block.

    None where none can be started.
    """
    if os.geteuid() != 0 or not Path("/usr/sbin/dockerd").exists():
        yield shutil.which("docker") if _answers() else None
        return
    docker = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else str(shutil.which("docker"))
    started = None
    if not _ready(docker):
        started = subprocess.Popen(["/usr/sbin/dockerd"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not _ready(docker) and time.monotonic() < deadline:
            time.sleep(0.5)
    try:
        yield docker
    finally:
        if started:
            started.terminate()
            started.wait()


def _answers() -> bool:
    docker = shutil.which("docker")
    return docker is not None and _ready(docker)


def measure() -> list[Figure]:
    say("docker: the same from a container")
    if os.geteuid() != 0:
        say("  skipped: starting a Docker engine needs root")
        return []
    if not Path("/usr/sbin/dockerd").exists():
        _install()
    with engine() as docker:
        if docker is None:
            return []
        _image(docker)
        argv = [docker, "run", "--rm", "--network", "none", IMAGE, "python3", "-c", "pass"]
        run_quietly(argv)
        docker_run, ours = interleaved(8, 0.2, lambda: milliseconds(lambda: run_quietly(argv)), _first(_cell))
    return [Figure("create -> first result", median(ours), "ms", "docker run … python3", median(docker_run), None)]
