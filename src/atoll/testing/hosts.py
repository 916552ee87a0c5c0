"""Things of this machine that a sandbox should not reach: servers, secrets, processes."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

Address = tuple[str, int]


class Servers(NamedTuple):
    """Where this machine listens: on its loopback, on an address that others see, and on an abstract Unix name."""

    loopback: Address
    outward: Address | None
    abstract: str


@contextmanager
def servers() -> Iterator[Servers]:
    """Servers whose kernel accepts connections as long as the block lasts."""
    address = outward_address()
    with socket.create_server(("127.0.0.1", 0)) as loopback, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0atoll-" + os.urandom(8).hex())
        abstract.listen(8)
        name = os.fsdecode(abstract.getsockname())
        if address is None:
            yield Servers(loopback.getsockname()[:2], None, name)
            return
        with socket.create_server((address, 0)) as outward:
            yield Servers(loopback.getsockname()[:2], outward.getsockname()[:2], name)


def outward_address() -> str | None:
    """An address of this machine other than the loopback, if it has one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
        sock.connect(("203.0.113.1", 9))
        name: str = sock.getsockname()[0]
        return None if name.startswith("127.") else name
    return None


@contextmanager
def secret_files() -> Iterator[dict[pathlib.Path, str]]:
    """Files that everybody on this machine may read, in the places where one would look for some."""
    made: dict[pathlib.Path, str] = {}
    directories: list[str] = []
    try:
        for above in ("/tmp", "/var/tmp", os.path.expanduser("~"), os.getcwd()):  # noqa: S108  # made just below, fresh
            with suppress(OSError):
                directories.append(tempfile.mkdtemp(prefix="atoll-secret-", dir=above))
                os.chmod(directories[-1], 0o777)  # noqa: S103  # the wall shall protect it, not its mode
                path = pathlib.Path(directories[-1], "secret")
                made[path] = os.urandom(16).hex()
                path.write_text(made[path])
                path.chmod(0o666)
        yield made
    finally:
        for directory in directories:
            shutil.rmtree(directory)


@contextmanager
def process(argument: str) -> Iterator[int]:
    """A process of this machine with a word of its own in its command line; gives its pid."""
    running = subprocess.Popen(
        ["sh", "-c", "echo ready; read wait", argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ATOLL_SECRET": argument},
    )
    with running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        yield running.pid
        running.kill()
