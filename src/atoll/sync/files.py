"""Files: the files of a sandbox, blocking."""

from __future__ import annotations

from ..client.feed import Input
from ..client.files import MAX_DOWNLOAD, MAX_READ, AsyncFiles, Entries, Matches, Path
from ..hints import FILES, elsewhere
from ..io import drive
from ..types import FileInfo, Transfer
from .docs import documented_by
from .process import Watch


@elsewhere(FILES)
@documented_by(AsyncFiles)
class Files:
    def __init__(self, core: AsyncFiles) -> None:
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)

    def read(self, path: Path, *, max_size: int = MAX_READ) -> str:
        return drive(self._core.read(path, max_size=max_size))

    def read_bytes(self, path: Path, *, offset: int = 0, size: int | None = None, max_size: int = MAX_READ) -> bytes:
        return drive(self._core.read_bytes(path, offset=offset, size=size, max_size=max_size))

    def write(
        self,
        path: Path,
        data: Input,
        *,
        append: bool = False,
        mode: int | None = None,
        parents: bool = True,
        atomic: bool = False,
    ) -> int:
        return drive(self._core.write(path, data, append=append, mode=mode, parents=parents, atomic=atomic))

    def list(self, path: Path = ".", *, recursive: bool = False) -> Entries:
        return drive(self._core.list(path, recursive=recursive))

    def info(self, path: Path, *, follow: bool = True) -> FileInfo:
        return drive(self._core.info(path, follow=follow))

    def exists(self, path: Path) -> bool:
        return drive(self._core.exists(path))

    def mkdir(self, path: Path, *, parents: bool = True, exist_ok: bool = True, mode: int | None = None) -> None:
        drive(self._core.mkdir(path, parents=parents, exist_ok=exist_ok, mode=mode))

    def remove(self, path: Path, *, recursive: bool = False, missing_ok: bool = False) -> None:
        drive(self._core.remove(path, recursive=recursive, missing_ok=missing_ok))

    def move(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        drive(self._core.move(source, target, overwrite=overwrite))

    def copy(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        drive(self._core.copy(source, target, overwrite=overwrite))

    def upload(self, local: Path, remote: Path) -> Transfer:
        return drive(self._core.upload(local, remote))

    def download(
        self,
        remote: Path,
        local: Path,
        *,
        overwrite: bool = False,
        symlinks: bool = False,
        max_size: int = MAX_DOWNLOAD,
    ) -> Transfer:
        return drive(self._core.download(remote, local, overwrite=overwrite, symlinks=symlinks, max_size=max_size))

    def watch(self, path: Path = ".", *, recursive: bool = True) -> Watch:
        return Watch(drive(self._core.watch(path, recursive=recursive)))

    def search(
        self,
        pattern: str | None = None,
        *,
        content: str | None = None,
        path: Path = ".",
        ignore_case: bool = False,
        limit: int = 1000,
    ) -> Matches:
        return drive(self._core.search(pattern, content=content, path=path, ignore_case=ignore_case, limit=limit))
