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
# Their names together: a name is free on the sandbox's disk where a file has many, and its path is long.
MOST_TEXT = 256 << 20

# A directory hides what is below it in the source; something shows what is elsewhere; a file has no content yet.
OPAQUE, REDIRECT, METACOPY = ".overlay.opaque", ".overlay.redirect", ".overlay.metacopy"


class Candidates:
    """Paths to compare, and directories of which all that is below, on both sides, is to be compared.

    `opaque` are directories that say of themselves that nothing of the source shows through, and `renamed` those that
    say that they show another directory of it.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.whole: set[str] = set()
        self.opaque: set[str] = set()
        self.renamed: set[str] = set()
        self._text = 0

    def add(self, path: str) -> None:
        """Raises SandboxError when there are too many to review."""
        if path not in self.paths:
            self.paths.add(path)
            self._text += len(path)
        if len(self.paths) > MOST_PATHS or self._text > MOST_TEXT:
            raise SandboxError(
                f"The sandbox has changed more than {MOST_PATHS} paths, or of names that are as long together.",
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
        marks = marks_of(layer, path) if path else []
        if marks:
            found.whole.add(path)
        if OPAQUE in marks:
            found.opaque.add(path)
        if REDIRECT in marks:
            found.renamed.add(path)
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


def marks_of(layer: Tree, path: str) -> list[str]:
    """The names of what the kernel has noted at a path of a layer; all that it could, where they cannot be read."""
    try:
        fd = beneath.open_beneath(layer.root, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return [REDIRECT]
    try:
        return [mark for mark in (OPAQUE, REDIRECT, METACOPY) if any(name.endswith(mark) for name in os.listxattr(fd))]
    except OSError as error:
        return [] if error.errno in (errno.ENOTSUP, errno.ENODATA) else [REDIRECT]
    finally:
        os.close(fd)
