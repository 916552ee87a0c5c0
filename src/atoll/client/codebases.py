"""AsyncCodebases: source trees that are stored here with an owner, for many sandboxes to use."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..codebases.shelf import Shelf
from ..errors import InvalidInput
from ..io import IO, AnyIO
from ..policy.text import kind_of
from ..types import Codebase, FileInfo, Transfer, Upload

Path: TypeAlias = "str | os.PathLike[str]"
Progress: TypeAlias = "Callable[[int, int], None]"


class AsyncCodebases:
    """The codebases of this user. Each is a tree of files in versions that never change.

    A codebase is named by its id, the beginning of its id, its name, `owner/name`, or as a `Codebase`. Every method
    that takes one raises `CodebaseNotFound`, and `InvalidInput` for words that may mean several. Any method may
    raise `StoreError`, and `FileError` where a disk refuses. Safe to use from many threads and processes at once.
    """

    def __init__(self, io: IO | None = None) -> None:
        """`io` is for internal use."""
        self._io = AnyIO() if io is None else io

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of this user>"

    async def create(
        self,
        name: str,
        path: Path | None = None,
        *,
        owner: str | None = None,
        ignore: Iterable[str] = (),
        on_progress: Progress | None = None,
    ) -> Codebase:
        """A new codebase: empty, as version 0, or with what is in the directory `path` as version 1.

        Args:
            owner: whose it is; by default the login name of this user. A name is unique for its owner.
            ignore: patterns as in a .gitignore, of what is left out.
            on_progress: called with the number of files that have been read, and of those to read.

        Raises:
            InvalidInput: the owner has one of this name, or the name or a pattern is wrong.
            FileError: as with `upload`; then there is no new codebase.
        """
        return await self._io.in_thread(
            lambda: Shelf().create(name, path, owner=owner, ignore=ignore, progress=on_progress)
        )

    async def upload(
        self,
        codebase: str | Codebase,
        path: Path,
        *,
        ignore: Iterable[str] = (),
        delete: bool = True,
        at: str = "",
        on_progress: Progress | None = None,
    ) -> Upload:
        """Make what is in the directory `path` the next version of a codebase, unless nothing differs.

        Only files that look different than at the last upload from there are read, and only contents that no
        codebase has are stored. A file with the same content and mode counts as unchanged and keeps its stored time.
        Symbolic links are stored as links; sockets, pipes and devices are `skipped`, set-uid bits dropped. Of
        several uploads at once each makes a version.

        Args:
            ignore: patterns as in a .gitignore, of what is left out.
            delete: whether what is not in `path` is not in the new version either. Otherwise it stays.
            at: the directory of the codebase that `path` is uploaded to, and that `delete` is about.
            on_progress: called with the number of files that have been read, and of those to read.

        Raises:
            FileDenied: some may not be read; the message names them, and nothing was uploaded.
            FileError: a file changes each time that it is read, or something is in the way of `at`.
            InvalidInput: `path`, `at` or a pattern is none.
        """
        return await self._io.in_thread(
            lambda: Shelf().upload(codebase, path, ignore=ignore, delete=delete, at=at, progress=on_progress)
        )

    async def download(
        self,
        codebase: str | Codebase,
        path: Path,
        *,
        version: int | None = None,
        overwrite: bool = False,
        on_progress: Progress | None = None,
    ) -> Transfer:
        """Write the current version of a codebase to a directory, or an older one that is still in use.

        Each file takes the place of an old one only when it is whole. Nothing is written through a symbolic link
        in the directory, and other files in it stay.

        Raises:
            FilePresent: the directory is not empty, and `overwrite` is False.
            FileMissing: there is no such version, or no more.
            FileError: something else is where a file or a directory must be.
        """
        return await self._io.in_thread(
            lambda: Shelf().download(codebase, path, version=version, overwrite=overwrite, progress=on_progress)
        )

    async def list(self, owner: str | None = None) -> builtins.list[Codebase]:
        """All codebases, or those of an owner, newest first."""
        return await self._io.in_thread(lambda: Shelf().list(owner))

    async def get(self, codebase: str | Codebase) -> Codebase:
        """What a codebase is now."""
        return await self._io.in_thread(lambda: Shelf().get(codebase))

    async def delete(self, codebase: str | Codebase) -> Codebase:
        """Remove a codebase; gives what it was. Sandboxes that use one of its versions keep it until they end."""
        return await self._io.in_thread(lambda: Shelf().delete(codebase))

    async def files(
        self, codebase: str | Codebase, path: str = "", *, recursive: bool = True, version: int | None = None
    ) -> builtins.list[FileInfo]:
        """What is in a codebase, or in the directory `path` of it. The paths are relative to the codebase.

        Args:
            recursive: whether what is in directories below comes too.

        Raises:
            FileMissing: there is no such version, or no more, or no such directory in it.
            NotDirectory: the path is no directory.
        """
        within = _from_root(path)
        return await self._io.in_thread(lambda: Shelf().files(codebase, within, recursive=recursive, version=version))

    async def read(self, codebase: str | Codebase, path: str) -> bytes:
        """The content of one file.

        Raises:
            FileMissing, IsDirectory, NotDirectory: there is no such file.
            FileError: it is a symbolic link, or a link is on the way; links are not followed.
        """
        return await self._io.in_thread(lambda: Shelf().read(codebase, _from_root(path)))

    async def write(self, codebase: str | Codebase, path: str, data: str | bytes) -> Upload:
        """Make a version in which one file is new or has another content. Missing directories are made.

        Raises:
            IsDirectory, NotDirectory: something else is in the way.
        """
        content = data.encode() if isinstance(data, str) else data
        if not isinstance(content, bytes | bytearray | memoryview):
            raise InvalidInput(f"data is {kind_of(data)}; give text or bytes.")
        return await self._io.in_thread(lambda: Shelf().write(codebase, _from_root(path), bytes(content)))


def _from_root(path: Any) -> Any:
    """A path in a codebase; a slash at its beginning is that of rules, and means the same."""
    return path.removeprefix("/") if isinstance(path, str) and path != "/" else path
