"""AsyncSnapshots: the snapshots that are kept here, of whichever sandbox."""

from __future__ import annotations

import builtins
import os
from typing import TypeAlias

from .. import registry
from ..driver import Driver
from ..io import IO, AnyIO
from ..policy.names import check_name
from ..policy.offers import demand
from ..policy.paths import host_path
from ..policy.sizes import parse_size
from ..types import Capability, Snapshot
from .history import described

Path: TypeAlias = "str | os.PathLike[str]"
LIMIT = "64G"


class AsyncSnapshots:
    """The snapshots of this user. `AsyncSandbox.snapshot` makes them, `AsyncSandbox.create(snapshot=name)` uses them.

    They outlive the sandboxes that they were made of. Every method may raise `Unsupported`, where the driver has none.

    Args:
        driver: whose they are; that of new sandboxes unless given.
    """

    def __init__(self, driver: str | None = None) -> None:
        self._io: IO = AnyIO()
        self._driver = driver

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of this user>"

    async def list(self, *, sandbox: str | None = None, driver: str | None = None) -> builtins.list[Snapshot]:
        """All of them, newest first.

        Args:
            sandbox: only those of the sandbox with this id.
            driver: those of this one instead.
        """
        wall = await self._load(driver)
        found = [described(wall.name, manifest) for manifest in await wall.snapshots()]
        return [each for each in found if sandbox in (None, each.sandbox)]

    async def get(self, name: str) -> Snapshot:
        """One of them. Raises SnapshotNotFound."""
        wall = await self._load()
        return described(wall.name, await wall.find_snapshot(check_name(name, "name")))

    async def delete(self, name: str) -> None:
        """Forget one, and free what nothing else needs. Sandboxes that were made of it live on.

        Raises:
            SnapshotNotFound: there is none of that name.
        """
        await (await self._load()).delete_snapshot(check_name(name, "name"))

    async def export(self, name: str, path: Path) -> None:
        """Write one to a file, with all that it takes to begin there on another machine.

        A source directory or codebase becomes part of it, as far as the sandbox saw it. The file is a tar; give it a
        name that ends in ".gz" or ".tgz" to have it compressed. What was there under this name is replaced when all is
        written.

        Raises:
            SnapshotNotFound: there is none of that name.
            Unsupported: it was made with `image=`, which would be missing there.
            FileError: the file cannot be written.
        """
        await (await self._load()).export_snapshot(check_name(name, "name"), host_path(path, "path"))

    async def import_file(self, path: Path, name: str | None = None, *, limit: int | str = LIMIT) -> Snapshot:
        """Read one from a file that `export` has written, on any machine. The file need not be trusted.

        It is taken apart behind no wall, so whatever is not exactly as `export` writes it is refused; then nothing is
        left of it. What it holds has been written by code that ran in some sandbox, and only runs in one again.

        Args:
            name: how to call it here; as it was called there unless given.
            limit: how much it may hold, such as "2G".

        Raises:
            InvalidInput: it is no such file, was damaged, or is over the limit; or there is a snapshot of that name.
            FileError: it cannot be read, or the disk is full.
        """
        wall = await self._load()
        chosen = None if name is None else check_name(name, "name")
        found = await wall.import_snapshot(host_path(path, "path"), chosen, limit=parse_size(limit, "limit"))
        return described(wall.name, found)

    async def _load(self, driver: str | None = None) -> Driver:
        wall = registry.load(driver or self._driver or registry.default_name(), self._io)
        demand(wall.name, await wall.offers(), Capability.SNAPSHOT)
        return wall
