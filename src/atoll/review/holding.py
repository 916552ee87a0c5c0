"""What a sandbox has only by reference to the source, made its own before the source changes.

A directory of the source that a sandbox renames is not copied: its layer has a new name and a reference to the old
place. An apply removes that place. What is there then would be gone for the sandbox, or be what comes to that place
later.
"""

from __future__ import annotations

import os
import stat

from . import beneath
from .candidates import METACOPY, OPAQUE, REDIRECT, Candidates, marks_of
from .tree import Tree

_PREFIXES = ("trusted", "user")


def hold(merged: Tree, uppers: tuple[int, ...], candidates: Candidates) -> None:
    """Take everything that the sandbox has by reference into its newest layer, and cut the references.

    What cannot be taken, on a full disk for instance, stays a reference.
    """
    with Tree(uppers[0], one_mount=True) as top:
        for path in sorted(candidates.paths - candidates.renamed):
            if METACOPY in _file_marks(uppers, path):
                merged.take(path)
        # What is inside first: a directory is its own when everything in it is.
        for path in sorted(candidates.renamed, reverse=True):
            _hold_directory(merged, top, path)


def _file_marks(uppers: tuple[int, ...], path: str) -> list[str]:
    """Of the newest layer that has it, if it is a file there."""
    for upper in uppers:
        with Tree(upper, one_mount=True) as layer:
            found = layer.stat(path)
            if found is not None:
                return marks_of(layer, path) if stat.S_ISREG(found.st_mode) else []
    return []


def _hold_directory(merged: Tree, top: Tree, path: str) -> None:
    try:
        merged.take(path)
        for below, _ in merged.below(path):
            merged.take(below)
            if not _has(top, below):
                return
    except OSError:
        return
    if _has(top, path):
        _cut(top, path)


def _has(top: Tree, path: str) -> bool:
    """Whether a layer has something itself, with its content."""
    found = top.stat(path)
    if found is None:
        return False
    return not stat.S_ISREG(found.st_mode) or METACOPY not in marks_of(top, path)


def _cut(top: Tree, path: str) -> None:
    """Have the kernel look for nothing below a directory of a layer, from the next mount on."""
    fd = beneath.open_beneath(top.root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        names = os.listxattr(fd)
        for prefix in _PREFIXES:
            if prefix + REDIRECT in names or prefix + OPAQUE in names:
                os.setxattr(fd, prefix + OPAQUE, b"y")
            if prefix + REDIRECT in names:
                os.removexattr(fd, prefix + REDIRECT)
    except OSError:
        pass
    finally:
        os.close(fd)
