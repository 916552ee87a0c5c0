"""Fetching wheels on the host, for an installer that needs no network: see `packages.fetch`, which is what runs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from typing import NamedTuple

from ..io import IO, Stream
from ..packages import settings
from ..types import Completed
from .progress import Lines

# All that pip says is kept for its reason, but no more than this; in characters.
_MOST_SAID = 1 << 20
_ENDING = 10.0
# What of the caller's environment pip reads: where passwords of indexes are, and whom it trusts.
_PASSED = ("HOME", "NETRC", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Wanted(NamedTuple):
    """What is to be fetched, and how."""

    python: str
    packages: tuple[str, ...]
    sources: settings.Sources
    directory: str
    seconds: float
    # How much of it there may be, in bytes, where that is less than usual.
    most: int | None = None

    @property
    def wheels(self) -> str:
        """The directory in which they are then."""
        return f"{self.directory}/wheels"


async def fetch(io: IO, wanted: Wanted, lines: Lines) -> Completed:
    """Have pip fetch wheels of all packages and of what these need; what it says is told line by line.

    Raises:
        OSError: it could not be started, or the disk refuses.
    """
    began = time.time()
    os.makedirs(f"{wanted.directory}/scratch")
    os.mkdir(wanted.wheels)
    ours, theirs = socket.socketpair()
    stream = Stream(io, ours)
    try:
        with theirs:
            process = _start(wanted, theirs)
        try:
            said = await _listen(stream, lines)
        except BaseException:
            process.kill()
            raise
        finally:
            # It has closed what it says it by, or was killed: it ends.
            with io.shield(_ENDING), contextlib.suppress(BrokenPipeError):
                code = await io.in_thread(process.wait)
                if process.stdin:
                    process.stdin.close()
        await io.in_thread(lambda: _open_to_all(wanted.wheels))
    finally:
        stream.close()
    return Completed(code if code >= 0 else 128 - code, said, "", time.time() - began)


def _open_to_all(wheels: str) -> None:
    """Whoever installs them is another user; the directories above are closed."""
    os.chmod(wheels, 0o755)  # noqa: S103 - see above
    with os.scandir(wheels) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                os.chmod(entry.path, 0o644)


async def _listen(stream: Stream, lines: Lines) -> str:
    said = ""
    while data := await stream.recv():
        text = data.decode(errors="replace")
        said = (said + text)[-_MOST_SAID:]
        await lines.hear(text)
    await lines.finish()
    return said


def _start(wanted: Wanted, output: socket.socket) -> subprocess.Popen[bytes]:
    parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.append({parent!r}); from atoll.packages.fetch import main; main()"
    environment = {
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
        **settings.proxies(shown=False),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": f"{wanted.directory}/scratch",
        # pip's settings were read already, and come as options.
        "PIP_CONFIG_FILE": os.devnull,
    }
    order = {
        "packages": wanted.packages,
        "options": [[name, *values] for name, values in wanted.sources.options],
        "directory": wanted.directory,
        "seconds": wanted.seconds,
        "most": wanted.most,
    }
    process = subprocess.Popen(
        [wanted.python, "-I", "-c", code],
        stdin=subprocess.PIPE,
        stdout=output.fileno(),
        stderr=output.fileno(),
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    # Not as an argument: there may be passwords in addresses, and everybody can read arguments.
    try:
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it says itself why it ended
    return process
