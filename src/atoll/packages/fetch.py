"""The process that fetches wheels on the host: pip, behind a filter that lets it start no program.

pip reads what an index says, and may be talked into building from source: by an address in the metadata of a wheel, or
in a requirement. A build is a program that pip starts, and here it can start none; where the kernel has Landlock, it
can also write nowhere but into its own directory. Wheels are kept as they are, and unpacked behind a wall.

It reads one JSON object from its standard input, which it then watches: when that ends, who wanted the wheels is gone.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from . import recipe, settings

# What may be fetched, and the memory that reading the answers of an index may take; in bytes.
MOST = 16 << 30
_LARGEST_FILE = 8 << 30
_MOST_MEMORY = 4 << 30
_TURN = 0.25
# pip's own settings that this decides.
_DECIDED = ("only-binary", "no-binary")


def command(order: dict[str, Any]) -> list[str]:
    """pip's arguments for an order: `packages`, `options` and `directory`."""
    options = recipe.options_of({"options": [each for each in order["options"] if each[0] not in _DECIDED]})
    return ["--isolated", "download", "--only-binary=:all:", f"--dest={order['directory']}/wheels", "--no-input",
            "--progress-bar=off", "--no-cache-dir", "--disable-pip-version-check", "--retries=2",
            *options, "--", *order["packages"]]  # fmt: skip


def main() -> None:
    line = sys.stdin.buffer.readline()
    order = json.loads(line)
    from ..engine import kernel
    from . import reach

    kernel.find_arguments()
    kernel.name_process("atoll-fetch")
    wheel = recipe.bundled_pip()
    if wheel:
        sys.path.insert(0, wheel)
    sources = settings.Sources(tuple((name, tuple(values)) for name, *values in order["options"]))
    close(order["directory"], reach.readable(sources))
    reach.guard(sources)
    until = time.monotonic() + order["seconds"]
    threading.Thread(target=_watch, args=(order["directory"], until, order["most"] or MOST), daemon=True).start()
    sys.argv = ["pip", *command(order)]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def close(directory: str, readable: tuple[str, ...]) -> None:
    """Let this process start no programs, for good; and where the kernel can hold that, write in `directory` only, and
    read there and beneath `readable`.

    Raises:
        OSError: the kernel has no seccomp filters.
    """
    from ..engine import kernel, landlock, seccomp

    for kind, most in ((resource.RLIMIT_FSIZE, _LARGEST_FILE), (resource.RLIMIT_AS, _MOST_MEMORY)):
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if abi := landlock.version():
        landlock.restrict(abi, (directory,), readable)
    seccomp.install(seccomp.no_programs(kernel.MACHINE))


def _watch(directory: str, until: float, most: int = MOST) -> None:
    """End this process when its limits are reached, or nobody wants it any more."""
    import select

    from ..engine import headroom

    while True:
        if select.select([0], [], [], _TURN)[0]:
            os._exit(1)
        if time.monotonic() > until:
            _give_up("the installer ran out of time")
        if _size(directory) > most:
            _give_up(f"the wheels have more than {most >> 20} MB")
        if headroom.spare(directory) < 0:
            _give_up("the disk of atoll's state directory is almost full")


def _give_up(why: str) -> None:
    os.write(2, f"ERROR: {why}\n".encode())
    os._exit(1)


def _size(directory: str) -> int:
    def look(path: str) -> Iterable[int]:
        for entry in os.scandir(path):
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from look(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue

    try:
        return sum(look(directory))
    except FileNotFoundError:
        return 0
