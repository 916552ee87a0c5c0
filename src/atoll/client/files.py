"""The files of a sandbox. Its kernel decides what its user may do; paths are absolute or relative to the workdir."""

from __future__ import annotations

import builtins
import errno
import os
import stat
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from ..errors import FileError, FileMissing, InvalidInput, NotDirectory, ProtocolError
from ..hints import FILES, elsewhere
from ..policy.paths import check_path, host_path
from ..policy.sizes import parse_size
from ..policy.text import kind_of, short, shown
from ..types import FileInfo, Match, Transfer
from ..wire.frames import DATA, EVENT, STDOUT, Frame
from . import answers
from .feed import Feed, Input
from .links import PATIENT, Links
from .noting import noting
from .operation import Operation
from .transfer import send_all
from .watch import AsyncWatch

if TYPE_CHECKING:
    from .record import Record

Path: TypeAlias = "str | os.PathLike[str]"

MAX_READ = 256 << 20
MAX_DOWNLOAD = 1 << 30
_MAX_EVENTS = 32 << 20


class Entries(builtins.list[FileInfo]):
    """A list of `FileInfo`. `skipped` counts directories below that may not be read, or lie too deep."""

    skipped: int = 0


class Matches(builtins.list[Match]):
    """A list of `Match`. `truncated` says that there are more than `limit`.

    `skipped` counts what may not be read, and directories that lie too deep.
    """

    truncated: bool = False
    skipped: int = 0


@elsewhere(FILES)
@noting
class AsyncFiles:
    """Every method raises `FileError`, or the subclass that fits, for what the sandbox's kernel refuses."""

    def __init__(self, links: Links, record: Record | None = None) -> None:
        self._links = links
        self._record = record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._links.sandbox}>"

    async def read(self, path: Path, *, max_size: int = MAX_READ) -> str:
        """The text of a file.

        Raises:
            FileError: it is not UTF-8 (use `read_bytes`), or larger than `max_size` (use `download`).
        """
        content = await self.read_bytes(path, max_size=max_size)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            name = os.fspath(path)
            raise FileError(
                f"{short(name)} is not UTF-8 text (byte {error.start}); use read_bytes.", errno=errno.EILSEQ, path=name
            ) from None

    async def read_bytes(
        self, path: Path, *, offset: int = 0, size: int | None = None, max_size: int = MAX_READ
    ) -> bytes:
        """The content of a file, or `size` bytes of it from `offset` on.

        Raises:
            FileError: there is more than `max_size`; `download` writes it to a file.
        """
        name = check_path(path)
        request: dict[str, Any] = {"op": "read", "path": name, "offset": _count(offset, "offset")}
        if size is not None:
            request["size"] = _count(size, "size")
        most = parse_size(max_size, "max_size")
        content = bytearray()  # not a list of pieces: a hostile guest could send them byte by byte
        async with await self._links.open(request) as operation:
            while (frame := await _next_data(operation)) is not None:
                content += frame.payload
                if len(content) > most:
                    raise FileError(
                        f"{short(name)} has more than {most} bytes; use download, or a larger max_size.",
                        errno=errno.EFBIG,
                        path=name,
                    )
        return bytes(content)

    async def write(
        self,
        path: Path,
        data: Input,
        *,
        append: bool = False,
        mode: int | None = None,
        parents: bool = True,
        atomic: bool = False,
    ) -> int:
        """Write text, bytes, or all that a file object or an iterator gives; how many bytes that were.

        A file that is there is written to, as `open(path, "w")` does it: it keeps its mode, its owner and its other
        names, and must allow it. That begins when all of the data has come, so a write that breaks off before changes
        nothing. With `atomic` a new file takes its place at once, which the directory must allow: nobody ever reads
        half of it. Missing directories are made unless `parents` is False.

        Raises:
            InvalidInput: the content is a value such as a dict or a list, of which nobody knows how to write it.
        """
        if append and atomic:
            raise InvalidInput("append and atomic are both True; what is appended is never a new file.")
        if isinstance(data, Collection) and not isinstance(data, str | bytes | bytearray | memoryview):
            raise InvalidInput(
                f"The content is {shown(data)}, {kind_of(data)}; give text or bytes, such as json.dumps(…) "
                "makes of it, or iter(…) for pieces."
            )
        request: dict[str, Any] = {"op": "write", "path": check_path(path), "append": append, "parents": parents}
        if atomic:
            request["atomic"] = True
        if mode is not None:
            request["mode"] = _mode(mode)
        return await self._send_file(request, Feed(self._links.io, data))

    async def _send_file(self, request: dict[str, Any], feed: Feed) -> int:
        at_once = feed.at_once()
        whole = at_once is not None
        async with await self._links.open(request, data=at_once or b"", eof=whole) as operation:
            if not whole:
                await send_all(operation, feed)
            return answers.integer(await operation.end(), "size")

    async def list(self, path: Path = ".", *, recursive: bool = False) -> Entries:
        """The entries of a directory, and with `recursive` of all below it, without following symbolic links.

        Raises:
            FileError: there are too many to hold in memory; list a smaller directory, or use `search`.
        """
        name = check_path(path)
        found = Entries()
        async with await self._links.open({"op": "list", "path": name, "recursive": recursive}) as operation:
            events = _Events(operation)
            while (said := await events.next()) is not None:
                found.extend(map(answers.file_info, answers.items(said, "entries")))
            found.skipped = answers.integer(events.answer, "skipped")
        return found

    async def info(self, path: Path, *, follow: bool = True) -> FileInfo:
        """What is at a path. With `follow=False` a symbolic link itself, not what it points to."""
        return await self._look(check_path(path), follow=follow)

    async def _look(self, path: str, *, follow: bool = True) -> FileInfo:
        answer = await self._links.ask("stat", path=path, follow=follow)
        return answers.file_info(answers.mapping(answer, "info"))

    async def exists(self, path: Path) -> bool:
        """Whether there is something at a path. What may not be looked at raises FileDenied."""
        try:
            await self.info(path)
        except (FileMissing, NotDirectory):
            return False
        return True

    async def mkdir(self, path: Path, *, parents: bool = True, exist_ok: bool = True, mode: int | None = None) -> None:
        """Make a directory, with those above it unless `parents` is False."""
        more = {} if mode is None else {"mode": _mode(mode)}
        await self._links.ask("mkdir", path=check_path(path), parents=parents, exist_ok=exist_ok, **more)

    async def remove(self, path: Path, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, an empty directory, or with `recursive` a whole tree."""
        await self._links.ask(
            "remove", quiet=PATIENT, path=check_path(path), recursive=recursive, missing_ok=missing_ok
        )

    async def move(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Give a file or tree another path. `target` is its new path, not a directory to put it in."""
        await self._transfer("move", source, target, overwrite=overwrite)

    async def copy(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Copy a file or a whole tree. `target` is the path of the copy, not a directory to put it in."""
        await self._transfer("copy", source, target, overwrite=overwrite)

    async def _transfer(self, op: str, source: Path, target: Path, *, overwrite: bool) -> None:
        source, target = check_path(source, "source"), check_path(target, "target")
        await self._links.ask(op, quiet=PATIENT, source=source, target=target, overwrite=overwrite)

    async def upload(self, local: Path, remote: Path) -> Transfer:
        """Copy a file or a whole tree of the host into the sandbox; `remote` is the path of the copy.

        A tree goes into a directory that is there, and replaces the files that it brings. Symbolic links
        stay links and are not followed, except `local` itself. Sockets, pipes and devices are `skipped`.

        Raises:
            FileError: something cannot be read here, or written there.
        """
        from . import transfer

        source, target = host_path(local, "local"), check_path(remote, "remote")
        if await self._links.io.in_thread(lambda: os.path.isdir(source)):
            return await transfer.upload_tree(self._links, source, target)
        file = await self._links.io.in_thread(lambda: _open_local(source))
        with file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            request = {"op": "write", "path": target, "mode": mode, "atomic": True, "parents": True}
            return Transfer(1, 0, 0, await self._send_file(request, Feed(self._links.io, file)))

    async def download(
        self,
        remote: Path,
        local: Path,
        *,
        overwrite: bool = False,
        symlinks: bool = False,
        max_size: int = MAX_DOWNLOAD,
    ) -> Transfer:
        """Copy a file or a whole tree out of the sandbox; `local` is the path of the copy.

        What is in the sandbox is not to be trusted: nothing is written outside `local`, and no link is
        followed on the way. A file replaces an old one when it is whole. A tree appears when it is whole;
        into a directory that is there and not empty it goes only with `overwrite`, file by file.

        Args:
            overwrite: for trees: replace files that are there.
            symlinks: make symbolic links, wherever they point to; otherwise they are `skipped`.
            max_size: bytes at which it stops.

        Raises:
            FileError: something cannot be read there or written here, or it is larger than `max_size`.
        """
        from . import transfer

        source, target = check_path(remote, "remote"), host_path(local, "local")
        most = parse_size(max_size, "max_size")
        found = await self._look(source)
        if found.type == "directory":
            return await transfer.download_tree(
                self._links, source, target, overwrite=overwrite, symlinks=symlinks, max_size=most
            )
        return await transfer.download_file(self._links, found, source, target, max_size=most)

    async def watch(self, path: Path = ".", *, recursive: bool = True) -> AsyncWatch:
        """Changes under a path, from now on.

        Raises:
            Unsupported: this sandbox cannot watch.
        """
        request = {"op": "watch", "path": check_path(path), "recursive": recursive}
        return await AsyncWatch(await self._links.open(request)).ready()

    async def search(
        self,
        pattern: str | None = None,
        *,
        content: str | None = None,
        path: Path = ".",
        ignore_case: bool = False,
        limit: int = 1000,
    ) -> Matches:
        """Files below `path` whose path fits a glob, and lines in them that fit a regular expression.

        With `content` each matching line is a hit, else each file.

        Raises:
            InvalidInput: neither was given, or one of them is no pattern.
        """
        request = _search_request(pattern, content, check_path(path), _count(limit, "limit"))
        request["ignore_case"] = ignore_case
        found = Matches()
        async with await self._links.open(request, quiet=PATIENT) as operation:
            events = _Events(operation)
            while (said := await events.next()) is not None:
                found.extend(map(answers.match, answers.items(said, "matches")))
                if len(found) > limit:
                    raise ProtocolError("The guest found more than it was asked for.")
            found.truncated = answers.flag(events.answer, "truncated")
            found.skipped = answers.integer(events.answer, "skipped")
        return found


def _open_local(path: str) -> BinaryIO:
    """Raises FileError, also for a pipe or device, from which one could read for ever."""
    from .transfer import refused

    try:
        file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except OSError as error:
        raise refused(error, path) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileError(f"{short(path)} is no file that can be read to an end.", errno=errno.EINVAL, path=path)
    return file


def _search_request(pattern: object, content: object, path: str, limit: int) -> dict[str, Any]:
    request: dict[str, Any] = {"op": "search", "path": path, "limit": limit}
    for name, value in (("glob", pattern), ("content", content)):
        if value is not None:
            if not isinstance(value, str) or not value:
                raise InvalidInput(f"The pattern is {shown(value)}; give text.")
            request[name] = value
    if pattern is None and content is None:
        raise InvalidInput(
            "There is nothing to search for; give a glob as pattern, or a regular expression as content."
        )
    return request


async def _next_data(operation: Operation) -> Frame | None:
    """The next piece of a file, or None at its end."""
    frame = await operation.next()
    if frame.kind == DATA and frame.stream == STDOUT:
        return frame
    operation.answer(frame)
    return None


class _Events:
    """The events of an operation, as many as fit into memory, and its answer after the last."""

    def __init__(self, operation: Operation) -> None:
        self.answer: answers.Answer = {}
        self._operation = operation
        self._room = _MAX_EVENTS

    async def next(self) -> answers.Answer | None:
        frame = await self._operation.next()
        if frame.kind != EVENT:
            self.answer = self._operation.answer(frame)
            return None
        # An honest guest puts many entries into an event; one that sends empty ones for ever must not get far.
        self._room -= max(len(frame.payload), 1 << 10)
        if self._room < 0:
            raise FileError("There are too many entries to hold; ask for a smaller directory.", errno=errno.EFBIG)
        return self._operation.json(frame)


def _count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise InvalidInput(f"{what} is {shown(value)}; give a whole number that is not negative.")
    return value


def _mode(mode: object) -> int:
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o7777:
        raise InvalidInput(f"mode is {shown(mode)}; give permission bits such as 0o644.")
    return mode
