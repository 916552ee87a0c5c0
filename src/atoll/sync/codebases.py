"""Codebases: source trees that are stored here with an owner, blocking."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from ..client.codebases import AsyncCodebases, Path, Progress
from ..io import BlockingIO, drive
from ..types import Codebase, FileInfo, Transfer, Upload
from .docs import documented_by


@documented_by(AsyncCodebases)
class Codebases:
    def __init__(self) -> None:
        self._core = AsyncCodebases(BlockingIO())

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)

    def create(
        self,
        name: str,
        path: Path | None = None,
        *,
        owner: str | None = None,
        ignore: Iterable[str] = (),
        on_progress: Progress | None = None,
    ) -> Codebase:
        return drive(self._core.create(name, path, owner=owner, ignore=ignore, on_progress=on_progress))

    def upload(
        self,
        codebase: str | Codebase,
        path: Path,
        *,
        ignore: Iterable[str] = (),
        delete: bool = True,
        at: str = "",
        on_progress: Progress | None = None,
    ) -> Upload:
        return drive(self._core.upload(codebase, path, ignore=ignore, delete=delete, at=at, on_progress=on_progress))

    def download(
        self,
        codebase: str | Codebase,
        path: Path,
        *,
        version: int | None = None,
        overwrite: bool = False,
        on_progress: Progress | None = None,
    ) -> Transfer:
        return drive(self._core.download(codebase, path, version=version, overwrite=overwrite, on_progress=on_progress))

    def list(self, owner: str | None = None) -> builtins.list[Codebase]:
        return drive(self._core.list(owner))

    def get(self, codebase: str | Codebase) -> Codebase:
        return drive(self._core.get(codebase))

    def delete(self, codebase: str | Codebase) -> Codebase:
        return drive(self._core.delete(codebase))

    def files(
        self, codebase: str | Codebase, path: str = "", *, recursive: bool = True, version: int | None = None
    ) -> builtins.list[FileInfo]:
        return drive(self._core.files(codebase, path, recursive=recursive, version=version))

    def read(self, codebase: str | Codebase, path: str) -> bytes:
        return drive(self._core.read(codebase, path))

    def write(self, codebase: str | Codebase, path: str, data: str | bytes) -> Upload:
        return drive(self._core.write(codebase, path, data))
