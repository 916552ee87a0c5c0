"""Codebases as sources: a sandbox and a snapshot keep the version that they stand on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..errors import FileMissing, InvalidInput
from .shelf import Shelf
from .versions import Versions


class Version(NamedTuple):
    """One of a codebase, and the directory with its files."""

    id: str
    version: int
    tree: str

    def data(self) -> dict[str, Any]:
        """What a handle or a snapshot remembers of it."""
        return {"id": self.id, "version": self.version}


@contextlib.contextmanager
def used(codebase: str, known: Mapping[str, Any] | None) -> Iterator[Version]:
    """The version that a sandbox begins with, kept meanwhile; the one that is `known`, if there is one.

    Raises:
        CodebaseNotFound: there is no such codebase.
        InvalidInput: the version is gone.
    """
    shelf = Shelf()
    try:
        use = shelf.use(str(known["id"]), int(known["version"])) if known else shelf.use(codebase)
    except FileMissing as error:
        raise InvalidInput(str(error)) from None
    try:
        yield Version(use.id, use.version, use.tree)
    finally:
        os.close(use.descriptor)


def pin(data: Mapping[str, Any], user: str) -> None:
    """Have a version kept for a sandbox or a snapshot, by its name."""
    if version := data.get("codebase"):
        Versions(Shelf().home, version["id"]).pin(int(version["version"]), user)


def unpin(data: Mapping[str, Any], user: str) -> None:
    """Doing so twice is harmless."""
    if version := data.get("codebase"):
        Versions(Shelf().home, version["id"]).unpin(int(version["version"]), user)
