"""All modules that a guest starts with in one file, for `guest.begin`."""

from __future__ import annotations

import json
import marshal
import os
import subprocess

from .. import rootfs
from . import GUEST, LIBRARY, interpreter

_LIST = """
import sys
sys.path.insert(0, {place!r})
import atoll.guest.__main__, atoll.guest.server, atoll.guest.switchboard, atoll.guest.descending
import json
found = []
for name, module in sorted(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if path and name != "__main__":
        found.append((name, path, hasattr(module, "__path__")))
print(json.dumps(found))
"""


def gather(root: str, target: str) -> None:
    """Write it. The guest and the library are in the tree `root` already.

    Raises:
        OSError: this Python cannot be started, or does not import the guest.
    """
    program = _LIST.format(place=root + GUEST)
    done = subprocess.run([interpreter(), "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"the guest cannot be imported: {done.stderr.strip()[-500:]}")
    modules = {}
    for name, path, is_package in json.loads(done.stdout):
        place = _inside(root, path)
        if place:
            modules[name] = (place, is_package, _code(root, place))
    with open(target, "wb") as file:
        marshal.dump(modules, file)


def _inside(root: str, path: str) -> str:
    """Where a file of this machine is in the tree; empty if it is not there."""
    library = rootfs.library()
    if path.startswith(f"{root}/"):
        place = path[len(root) :]
    elif path.startswith(f"{library}/"):
        place = LIBRARY + path[len(library) :]
    else:
        place = f"{LIBRARY}/lib-dynload/{os.path.basename(path)}"
    return place if os.path.exists(root + place) else ""


def _code(root: str, place: str) -> bytes:
    """Compiled for its place; b"" for what is compiled already."""
    if not place.endswith(".py"):
        return b""
    with open(root + place, "rb") as file:
        return marshal.dumps(compile(file.read(), place, "exec", dont_inherit=True, optimize=0))
