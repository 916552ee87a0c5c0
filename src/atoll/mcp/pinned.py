"""The configuration of agents as it was when the server started.

It may name programs that a run starts on the host. So it is the owner's alone: what a session brings over never changes
it, and once it has changed nevertheless, no run begins before somebody has started the server again.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from ..config import files
from ..errors import InvalidInput

_LARGEST = 1 << 20
_MOST_LINKS = 40


class Pin(NamedTuple):
    """`path` is the file, None for none; `named` is whether $ATOLL_CONFIG names it, so that it is trusted unseen."""

    path: str | None
    named: bool = False
    digest: str | None = None

    def check(self) -> None:
        """Raises InvalidInput when another file, or other content, would be read now."""
        if pin() != self:
            where = self.path or "The configuration of agents"
            raise InvalidInput(
                f"{where} is not what it was when this server started, so no run begins.",
                hint="The user should look at it, and restart the server to use it as it is.",
            )

    def places(self) -> set[str]:
        """The file, and every link on the way to it: whoever changes one of them has something else be read."""
        if self.path is None:
            return set()
        found, ahead = {os.path.realpath(self.path)}, [self.path]
        while ahead and len(found) <= _MOST_LINKS:
            path = ahead.pop()
            names = path.strip("/").split("/")
            above = "/"
            for number, name in enumerate(names):
                here = os.path.join(above, name)
                if os.path.islink(here) and here not in found:
                    found.add(here)
                    ahead.append(os.path.join(above, os.readlink(here), *names[number + 1 :]))
                above = os.path.realpath(here)
        return found


def pin() -> Pin:
    """What agents would read now."""
    named = os.environ.get("ATOLL_CONFIG")
    if named:
        path = os.path.abspath(named)
        return Pin(path, True, _digest(path))
    try:
        found = files.find(os.getcwd())
    except FileNotFoundError:  # the working directory was removed
        found = None
    return Pin(found, False, None if found is None else _digest(found))


def _digest(path: str) -> str | None:
    """None for what cannot be read, which the run itself refuses with a sentence."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(fd, "rb") as file:
            return hashlib.sha256(file.read(_LARGEST + 1)).hexdigest()
    except (OSError, ValueError):
        return None
