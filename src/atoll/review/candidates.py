"""Where to look for changes: every path that a layer names, and everything below what a layer hides or moves.

Nothing that a layer says is believed. It is written by hostile code, and a path too many costs only a comparison.
"""

from __future__ import annotations

import errno
import os

from ..errors import SandboxError
from . import beneath
from .tree import Tree, is_too_deep, join

MOST_PATHS = 1_000_000

# With these, a directory of a layer hides what is below it in the source, or shows what is elsewhere.
_MARKS = (".overlay.opaque", ".overlay.redirect")


class Candidates:
    """Paths to compare, and directories of which all that is below, on both sides, is to be compared."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.whole: set[str] = set()

    def add(self, path: str) -> None:
        """Raises SandboxError when there are too many to review."""
        self.paths.add(path)
        if len(self.paths) > MOST_PATHS:
            raise SandboxError(
                f"The sandbox has changed more than {MOST_PATHS} paths.",
                hint="Remove what is not needed inside the sandbox, then review the rest.",
            )


def find_candidates(uppers: tuple[int, ...]) -> Candidates:
    """Look through the layers.

    Raises:
        SandboxError: there is more than anybody can review.
        OSError: a layer cannot be read.
    """
    found = Candidates()
    for upper in uppers:
        with Tree(upper, one_mount=True) as layer:
            _look_through(layer, found)
    return found


def _look_through(layer: Tree, found: Candidates) -> None:
    waiting = [""]
    while waiting:
        path = waiting.pop()
        if path and _stands_alone(layer, path):
            found.whole.add(path)
        try:
            entries = layer.entries(path)
        except PermissionError:
            # The sandbox closed it to us; whatever is in there shows in the comparison.
            found.whole.add(path)
            continue
        for name, directory in entries:
            here = join(path, name)
            found.add(here)
            if directory and not is_too_deep(here):
                waiting.append(here)


def _stands_alone(layer: Tree, path: str) -> bool:
    """Whether a directory of a layer may show something else than itself over the source."""
    try:
        fd = beneath.open_beneath(layer.root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        return any(name.endswith(_MARKS) for name in os.listxattr(fd))
    except OSError as error:
        return error.errno not in (errno.ENOTSUP, errno.ENODATA)
    finally:
        os.close(fd)
