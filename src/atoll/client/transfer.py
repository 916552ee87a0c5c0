"""Files and trees between the host and a sandbox."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from ..errors import FileError, file_error
from ..guest.descriptors import write_all
from ..io import IO
from ..policy.text import short
from ..types import FileInfo, Transfer
from ..wire.frames import DATA, DATA_SIZE, STDOUT
from .answers import Answer, integer
from .landing import Landing
from .links import PATIENT, Links
from .operation import Operation
from .packing import Packing

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Source(Protocol):
    async def read(self, size: int) -> bytes | memoryview: ...


class Pieces:
    """An iterator that touches the disk, read off the event loop."""

    def __init__(self, io: IO, pieces: Iterator[bytes]) -> None:
        self._io = io
        self._pieces = pieces

    async def read(self, size: int) -> bytes:
        return await self._io.in_thread(lambda: next(self._pieces, b""))


async def send_all(operation: Operation, source: Source) -> None:
    """Everything and its end, unless the guest ends the operation before."""
    while not operation.ended:
        piece = await source.read(DATA_SIZE)
        if not piece:
            await operation.eof()
            return
        await operation.send(piece)


async def receive_all(io: IO, operation: Operation, take: Callable[[bytes], None]) -> Answer:
    """Hand all that the guest sends to a function that touches the disk; its answer at the end."""
    while (frame := await operation.next()).kind == DATA and frame.stream == STDOUT:
        payload = frame.payload
        await io.in_thread(lambda: take(payload))  # noqa: B023  # called before the next turn
    return operation.answer(frame)


async def upload_tree(links: Links, local: str, remote: str) -> Transfer:
    packing = Packing(local)
    async with await links.open({"op": "unpack", "path": remote}, quiet=PATIENT) as operation:
        await send_all(operation, Pieces(links.io, packing.pieces()))
        await operation.end()
    return packing.moved


async def download_tree(
    links: Links, remote: str, local: str, *, overwrite: bool, symlinks: bool, max_size: int
) -> Transfer:
    """Into a directory that is there, or else into one that appears when it is whole."""
    place = await links.io.in_thread(lambda: TreePlace(local, overwrite=overwrite))
    try:
        landing = Landing(place.fd, local, overwrite=overwrite, symlinks=symlinks, max_size=max_size)
        try:
            async with await links.open({"op": "pack", "path": remote}, quiet=PATIENT) as operation:
                answer = await receive_all(links.io, operation, landing.take)
            moved = landing.finish()._replace(special=integer(answer, "skipped"))
        finally:
            landing.close()
        place.keep()
        return moved
    finally:
        place.close()


async def download_file(links: Links, found: FileInfo, remote: str, local: str, *, max_size: int) -> Transfer:
    """The new content takes the place of an old file only when it is whole."""
    place = await links.io.in_thread(lambda: FilePlace(local, found, max_size))
    try:
        async with await links.open({"op": "read", "path": remote, "offset": 0}) as operation:
            await receive_all(links.io, operation, place.take)
        place.keep()
        return Transfer(1, 0, 0, place.size)
    finally:
        place.close()


class TreePlace:
    """The directory that a tree lands in. A new one has another name until `keep`, and is removed without it.

    Raises:
        FileError: something is in the way, or the host refuses.
    """

    def __init__(self, local: str, *, overwrite: bool) -> None:
        self._local = local
        self._made: str | None = None
        try:
            if os.path.lexists(local):
                if not overwrite and os.listdir(local):
                    raise file_error(
                        errno.EEXIST, f"{short(local)} is not empty; overwrite=True writes into it.", local
                    )
                self.fd = os.open(local, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            else:
                self._made = beside(local)
                os.mkdir(self._made, 0o777)
                self.fd = os.open(self._made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise refused(error, local) from error

    def keep(self) -> None:
        if self._made is not None:
            try:
                os.rename(self._made, self._local)
            except OSError as error:
                raise refused(error, self._local) from error
            self._made = None

    def close(self) -> None:
        os.close(self.fd)
        if self._made is not None:
            from ..engine.removal import remove_tree

            remove_tree(self._made)


class FilePlace:
    """The file that a download writes, beside its final place until `keep`. Raises as `TreePlace` does."""

    def __init__(self, local: str, found: FileInfo, max_size: int) -> None:
        self.size = 0
        self._local = local
        self._found = found
        self._max_size = max_size
        self._made: str | None = beside(local)
        try:
            if os.path.isdir(local):
                raise file_error(
                    errno.EISDIR, f"{short(local)} is a directory; name the file that is to be written.", local
                )
            self._fd = os.open(self._made, _NEW_FILE, found.mode & 0o777 | 0o600)
        except OSError as error:
            raise refused(error, local) from error

    def take(self, content: bytes) -> None:
        self.size += len(content)
        if self.size > self._max_size:
            raise FileError(f"The file is larger than max_size; {short(self._local)} is as it was.", errno=errno.EFBIG)
        try:
            write_all(self._fd, content)
        except OSError as error:
            raise refused(error, self._local) from error

    def keep(self) -> None:
        if self._made is not None:
            try:
                os.utime(self._fd, (self._found.modified, self._found.modified))
                os.replace(self._made, self._local)
            except (OSError, OverflowError) as error:
                raise refused(error, self._local) from error
            self._made = None

    def close(self) -> None:
        os.close(self._fd)
        if self._made is not None:
            os.unlink(self._made)


def beside(local: str) -> str:
    """A name in the same directory that nobody else uses."""
    return os.path.join(os.path.dirname(local), f".atoll-{os.urandom(8).hex()}")


def refused(error: Exception, path: str) -> FileError:
    if isinstance(error, FileError):
        return error
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return file_error(number, f"{os.strerror(number)}: {short(path)}", path)
