"""What the source was when the sandbox started, so that an apply can tell whether it has moved on.

A record is a file of JSON lines that only ever grows: a head; a line for every path that the sandbox can see; a mark
that all of them are there; then digests. Whoever reads it while it is written, or after its writer was killed, knows
less and nothing wrong. What an apply put into the source is told in a second file beside it, which counts for more.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

from ..guest.descriptors import write_all
from .content import link_content, read_content
from .judging import Ignores, Judge, Levels
from .tree import Tree, Type, is_too_deep, join, type_of

_LARGEST_FILE = 64 << 20
_ALL_FILES = 4 << 30
_BUFFER = 1 << 16
_VERSION = 1
# A change within one tick of the clock leaves no trace in a time stamp. What was changed so shortly before it was
# looked at may be changed again unseen; only its digest tells.
_TICK = 20_000_000
# So far may a time stamp be behind the clock.
_COARSE = 5_000_000
_NEVER = 1 << 63
# No file has this size: whatever is there now, it is not as it was.
_MOVED_ON = -1


class Record(NamedTuple):
    """A path of the source at some moment. `digest` is that of a file's content or a link's target, if known."""

    type: Type
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str | None = None

    def is_same(self, found: os.stat_result) -> bool:
        """Whether nobody has touched it since. A directory is the same while it is one."""
        now = record_of(found)
        if self.type == now.type == "directory":
            return True
        return self.ctime_ns != 0 and self[:6] == now[:6]


class Base:
    """What is known of the source at the start. `complete` says that it had nothing but what is in `records`.

    `applied` are the paths that came into it later, by an apply of this sandbox's.
    """

    def __init__(
        self, records: dict[str, Record | None], *, complete: bool, applied: frozenset[str] = frozenset()
    ) -> None:
        self._records = records
        self.complete = complete
        self.applied = applied

    def knows(self, path: str) -> bool:
        return self.complete or path in self._records

    def record(self, path: str) -> Record | None:
        """None when the source had nothing there that the sandbox could see, or when nothing is known."""
        return self._records.get(path)


def record_of(found: os.stat_result, digest: str | None = None) -> Record:
    return Record(
        type_of(found.st_mode),
        stat.S_IMODE(found.st_mode),
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_ino,
        digest,
    )


def record_base(
    source: str, target: str, levels: Levels | None, ignores: Ignores | None, started: int | None = None
) -> None:
    """Write down what is in `source`: first what `stat` says of every path that a sandbox sees, then the digests of the
    files that it can write to, as far as nobody changes them meanwhile. Reads gigabytes; run it in the background.

    `started` is when the sandbox began to see it, in nanoseconds of the clock. What has changed since then, before it
    was looked at here, is not what the sandbox has seen: nothing is known of that but that it has moved on.

    Raises:
        OSError: the source cannot be read, or the record cannot be written.
    """
    judge = Judge(levels, ignores)
    root = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with Tree(root, one_mount=True) as tree, _Writer(target) as writer:
            writer.add(["atoll-base", _VERSION])
            writable: list[tuple[str, Record]] = []
            latest = _NEVER if started is None else started - _COARSE
            complete = os.fstat(root).st_ctime_ns < latest
            for path, seen, changed in _records(tree, judge):
                is_late = changed >= latest
                record = seen._replace(size=_MOVED_ON, ctime_ns=0, digest=None) if is_late else seen
                complete = complete and not (is_late and record.type == "directory")
                writer.add(["s", path, *record])
                if not is_late and _is_worth_reading(record) and judge.level(path, False) == "write":
                    writable.append((path, record))
            if complete:
                writer.add(["all"])
            writer.flush()
            for path, digest in _digests(tree, writable):
                writer.add(["d", path, digest])
    finally:
        os.close(root)


def _is_worth_reading(record: Record) -> bool:
    return record.type == "file" and record.size <= _LARGEST_FILE


class _Writer:
    """Lines, appended so that no write ends within one unless the disk is full."""

    def __init__(self, target: str) -> None:
        self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._waiting: list[bytes] = []
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.flush()
        finally:
            os.close(self._fd)

    def add(self, line: list[object]) -> None:
        raw = _line(line)
        self._waiting.append(raw)
        self._size += len(raw)
        if self._size >= _BUFFER:
            self.flush()

    def flush(self) -> None:
        write_all(self._fd, b"".join(self._waiting))
        self._waiting.clear()
        self._size = 0


def _line(values: list[object]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"


def _records(tree: Tree, judge: Judge) -> Iterator[tuple[str, Record, int]]:
    """Every path that can be seen, and when it changed last. A directory may be hidden and hold what is not."""
    waiting = [""]
    while waiting:
        above = waiting.pop()
        try:
            names = tree.names(above)
        except PermissionError:
            continue
        for name in names:
            path = join(above, name)
            found = tree.stat(path)
            if found is None:
                continue
            directory = stat.S_ISDIR(found.st_mode)
            if directory and not judge.is_reserved(path) and not judge.is_ignored(path, True) and not is_too_deep(path):
                waiting.append(path)
            if directory or judge.seen(path, directory) != "none":
                yield path, _examined(tree, path, found), found.st_ctime_ns


def _examined(tree: Tree, path: str, found: os.stat_result) -> Record:
    digest = None
    if stat.S_ISLNK(found.st_mode):
        try:
            digest = link_content(tree.link_target(path)).digest
        except OSError:
            pass  # it has just been replaced, which its time stamps tell
    record = record_of(found, digest)
    return record._replace(ctime_ns=0) if time.time_ns() - record.ctime_ns < _TICK else record


def _digests(tree: Tree, writable: list[tuple[str, Record]]) -> Iterator[tuple[str, str]]:
    left = _ALL_FILES
    for path, record in writable:
        if record.size > left:
            continue
        try:
            fd = tree.open_file(path)
        except OSError:
            continue
        try:
            unchanged = _is_unchanged(record, os.fstat(fd))
            content = read_content(fd) if unchanged else None
            if content is not None and content.digest and content.steady and _is_unchanged(record, os.fstat(fd)):
                yield path, content.digest
        except OSError:
            continue
        finally:
            os.close(fd)
        left -= record.size


def _is_unchanged(record: Record, found: os.stat_result) -> bool:
    now = record_of(found)
    return record[:4] == now[:4] and record.inode == now.inode and record.ctime_ns in (0, now.ctime_ns)


def write_base(target: str, records: Iterable[tuple[str, Record]]) -> None:
    """Write down what somebody knows otherwise of a source at the start: all of it. Raises OSError."""
    with _Writer(target) as writer:
        writer.add(["atoll-base", _VERSION, 0, 0])
        for path, record in records:
            writer.add(["s", path, *record])
        writer.add(["all"])


def append_applied(base: str, entries: list[tuple[str, Record | None]]) -> None:
    """Tell what an apply has put into the source; None is for what it has removed. Raises OSError."""
    lines = [_line(["s", path, *record]) if record is not None else _line(["gone", path]) for path, record in entries]
    fd = os.open(f"{base}.applied", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            lines.insert(0, b"\n")  # whoever wrote before was killed within a line
        write_all(fd, b"".join(lines))
    finally:
        os.close(fd)


def load_base(path: str | None) -> Base:
    """What a record says so far; nothing, when there is none."""
    records: dict[str, Record | None] = {}
    complete, applied = False, frozenset[str]()
    if path is not None:
        complete = _load(path, records)
        later: dict[str, Record | None] = {}
        _load(f"{path}.applied", later)
        records.update(later)
        applied = frozenset(name for name, record in later.items() if record is not None)
    return Base(records, complete=complete, applied=applied)


def _load(path: str, records: dict[str, Record | None]) -> bool:
    """Take in the lines of a file; whether the mark is among them that every path is there."""
    complete = False
    for line in _lines(path):
        if line[0] == "atoll-base" and line[1] != _VERSION:
            return False
        complete = complete or line[0] == "all"
        _take_in(line, records)
    return complete


def _lines(path: str) -> list[list[Any]]:
    """All lines but the last, if its writer is not done with it."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return []
    whole = raw[: raw.rfind(b"\n") + 1]
    try:
        # At once: that is many times quicker than line by line.
        lines: list[list[Any]] = json.loads(b"[" + whole.rstrip(b"\n").replace(b"\n", b",") + b"]")
    except ValueError:
        lines = [line for line in map(_parsed, whole.splitlines()) if line]
    return lines


def _parsed(raw: bytes) -> list[Any]:
    """Nothing for a line whose writer was killed within it."""
    try:
        line = json.loads(raw)
    except ValueError:
        return []
    return line if isinstance(line, list) else []


def _take_in(line: list[Any], records: dict[str, Record | None]) -> None:
    if line[0] == "s":
        records[line[1]] = Record(*line[2:9])
    elif line[0] == "gone":
        records[line[1]] = None
    elif line[0] == "d":
        known = records.get(line[1])
        if known is not None:
            records[line[1]] = known._replace(digest=line[2])
