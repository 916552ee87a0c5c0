"""Snapshots: the snapshots that are kept here, blocking."""

from __future__ import annotations

import builtins

from ..client.snapshots import LIMIT, AsyncSnapshots, Path
from ..io import BlockingIO, drive
from ..types import Snapshot
from .docs import documented_by


@documented_by(AsyncSnapshots)
class Snapshots:
    def __init__(self, driver: str | None = None) -> None:
        self._core = AsyncSnapshots(driver)
        self._core._io = BlockingIO()  # noqa: SLF001  # the other half of the same class

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)

    def list(self, *, sandbox: str | None = None, driver: str | None = None) -> builtins.list[Snapshot]:
        return drive(self._core.list(sandbox=sandbox, driver=driver))

    def get(self, name: str) -> Snapshot:
        return drive(self._core.get(name))

    def delete(self, name: str) -> None:
        drive(self._core.delete(name))

    def export(self, name: str, path: Path) -> None:
        drive(self._core.export(name, path))

    def import_file(self, path: Path, name: str | None = None, *, limit: int | str = LIMIT) -> Snapshot:
        return drive(self._core.import_file(path, name, limit=limit))
