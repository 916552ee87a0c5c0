"""The operation `search`: by name, by content, or both. A regular expression may never end, so a child does it."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Pattern, Tuple

from .arguments import Arguments
from .globs import compile_glob
from .jobs import Job, Steps
from .machine import Machine
from .refusal import invalid
from .walking import Step, Walk
from .worker import Emit, Worker

_LIMIT = 1000
_BATCH = 64
_LINE_LIMIT = 1 << 16
_TEXT_LIMIT = 500
_BINARY_PROBE = 8192


class Query(NamedTuple):
    """What to look for. Without `content` the names alone are the hits."""

    glob: Optional[str]
    content: Optional[str]
    ignore_case: bool
    limit: int


def search(machine: Machine, job: Job, arguments: Arguments) -> Steps:
    """Regular files below a directory, or a single one. Links are not followed."""
    path = arguments.text("path", ".")
    query = Query(
        arguments.optional_text("glob"),
        arguments.optional_text("content"),
        arguments.flag("ignore_case"),
        arguments.count("limit", _LIMIT) or 0,
    )
    if query.glob is None and query.content is None:
        raise invalid("Give a glob, a regular expression for the content, or both.")
    base = machine.root.absolute(path)
    fd = machine.root.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        worker = Worker(machine, job, lambda emit: _Search(query, emit).run(fd, base), (fd,))
    finally:
        os.close(fd)
    return (yield from worker.relay())


class _Search:
    """In the child."""

    def __init__(self, query: Query, emit: Emit) -> None:
        self._glob = None if query.glob is None else compile_glob(query.glob, ignore_case=query.ignore_case)
        self._content = None if query.content is None else _compile(query.content, query.ignore_case)
        self._emit = emit
        self._left = query.limit
        self._truncated = False
        self._skipped = 0
        self._batch: List[Dict[str, Any]] = []

    def run(self, fd: int, base: str) -> Dict[str, Any]:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self._tree(fd, base)
        elif stat.S_ISREG(os.fstat(fd).st_mode):
            self._file(os.dup(fd), posixpath.basename(base), base)
        self._flush()
        return {"truncated": self._truncated, "skipped": self._skipped}

    def _tree(self, fd: int, base: str) -> None:
        with Walk(fd, forgiving=True, pruning=True) as walk:
            for step in walk.entries():
                if step is not None and step.is_file and self._fits(step.path):
                    self._look(step, posixpath.join(base, step.path))
                if self._truncated:
                    break
            self._skipped += walk.skipped

    def _fits(self, path: str) -> bool:
        return self._glob is None or self._glob.match(path) is not None

    def _look(self, step: Step, path: str) -> None:
        if self._content is None:
            self._hit(path, 0, "")
            return
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(step.name, flags, dir_fd=step.directory)
        except OSError:
            self._skipped += 1
            return
        self._read(fd, path)

    def _file(self, fd: int, name: str, path: str) -> None:
        if not self._fits(name):
            os.close(fd)
        elif self._content is None:
            os.close(fd)
            self._hit(path, 0, "")
        else:
            self._read(fd, path)

    def _read(self, fd: int, path: str) -> None:
        with open(fd, "rb") as file:
            try:
                for number, line in _lines(file):
                    if self._content is not None and self._content.search(line):
                        self._hit(path, number, line[:_TEXT_LIMIT])
                    if self._truncated:
                        return
            except OSError:
                self._skipped += 1

    def _hit(self, path: str, line: int, text: str) -> None:
        if self._left <= 0:
            self._truncated = True
            return
        self._left -= 1
        self._batch.append({"path": path, "line": line, "text": text})
        if len(self._batch) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            self._emit({"matches": self._batch})
            self._batch = []


def _compile(content: str, ignore_case: bool) -> Pattern[str]:
    try:
        return re.compile(content, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise invalid("%r is no regular expression: %s." % (content[:200], error)) from error


def _lines(file: BinaryIO) -> Iterator[Tuple[int, str]]:
    """Numbered lines of a text file; a very long one comes in pieces, and a binary file has none."""
    number, fresh = 0, True
    if b"\0" in file.read(_BINARY_PROBE):
        return
    file.seek(0)
    while True:
        line = file.readline(_LINE_LIMIT)
        if not line:
            return
        number += fresh
        fresh = line.endswith(b"\n")
        yield number, line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
