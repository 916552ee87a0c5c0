"""Writing the variables of a namespace to a file: each by itself, then those together that share something."""

from __future__ import annotations

import errno
import sys
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import frozenfile, situation
from .buffers import BufferWriter
from .frozenfile import Index, Part, Span
from .pickling import GLOBALS, Toolbox, reason, shared_objects
from .situation import Start

# Variables that share something are also kept one by one, as long as that is cheap.
_ALONE_LIMIT = 16 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_ROOM = "the sandbox's disk has no room for it; disk= says how much there is"


class Job(NamedTuple):
    """What to write. `skipped` has the reasons for variables that have ended an earlier try; with `partial` those that
    the disk has no room for are lost, and the others kept."""

    namespace: Dict[str, Any]
    start: Start
    flags: int
    skipped: Dict[str, str]
    partial: bool = False


class Freezer:
    """Done once, in a process that can be spared.

    Args:
        tell: is called with the name of each variable before its turn.
    """

    def __init__(self, job: Job, file: BinaryIO, tell: Callable[[str], None]) -> None:
        self._job = job
        self._file = file
        self._tell = tell
        self._tools = Toolbox(job.namespace)
        self._buffers = BufferWriter(file)
        self._lost = dict(job.skipped)
        self._kept: Dict[str, Tuple[Span, bool]] = {}
        self._owners: Dict[int, str] = {}
        self._alive: List[Any] = []
        self._friends: Dict[str, str] = {}

    def run(self) -> Dict[str, Any]:
        names = [name for name in list(self._job.namespace) if _lasts(name)]
        for name in names:
            if name not in self._job.skipped:
                self._tell(name)
                self._keep(name)
        parts = self._parts()
        index = Index(
            list(sys.version_info[:2]),
            self._job.flags,
            situation.describe(self._job.start),
            [name for name in names if name in self._kept],
            parts,
            self._lost,
            self._buffers.places,
        )
        frozenfile.finish(self._file, index)
        self._file.flush()
        return {"saved": len(self._kept), "lost": self._lost}

    def _keep(self, name: str) -> None:
        try:
            span, pickler = self._dump(self._value(name), name)
        except BaseException as error:  # one bad value loses only itself
            if is_full(error) and not self._job.partial:
                raise
            self._lost[name] = NO_ROOM if is_full(error) else reason(error)
            return
        self._kept[name] = span, pickler.has_code
        self._friends[name] = name
        for value in shared_objects(pickler):
            owner = self._owners.setdefault(id(value), name)
            if owner != name:
                self._friends[self._root(name)] = self._root(owner)
            else:
                self._alive.append(value)  # another may not get its id

    def _root(self, name: str) -> str:
        while self._friends[name] != name:
            name = self._friends[name]
        return name

    def _value(self, name: str) -> Any:
        value = self._job.namespace[name]
        return GLOBALS if value is self._job.namespace else value

    def _dump(self, value: Any, name: str) -> Tuple[Span, Any]:
        """Whatever goes wrong leaves nothing of it in the file."""
        begin = self._file.tell()
        self._buffers.begin()
        try:
            pickler = self._tools.pickler(self._file, self._buffers.take)
            pickler.dump(value)
            size = self._file.tell() - begin
            return Span(begin, size, self._buffers.write(lambda: self._tell(name))), pickler
        except BaseException:
            self._buffers.undo()
            self._file.seek(begin)
            self._file.truncate()
            raise

    def _parts(self) -> List[Part]:
        circles: Dict[str, List[str]] = {}
        for name in self._kept:
            circles.setdefault(self._root(name), []).append(name)
        parts: List[Part] = []
        for names in circles.values():
            together = self._together(names) if len(names) > 1 else None
            if together is not None:
                parts.append(together)
            else:
                parts.extend(Part([name], *self._kept[name], {}) for name in names)
        return parts

    def _together(self, names: List[str]) -> Optional[Part]:
        """One pickle of several variables, or None when each must do by itself."""
        self._tell(names[0])
        try:
            span, pickler = self._dump({name: self._value(name) for name in names}, names[0])
        except Exception as error:  # each by itself did work
            if is_full(error) and not self._job.partial:
                raise
            return None
        alone = {name: self._kept[name][0] for name in names}
        if sum(where.size for where in alone.values()) > _ALONE_LIMIT:
            alone = {}
        return Part(names, span, pickler.has_code, alone)


def is_full(error: BaseException) -> bool:
    """Whether there is no room left, which is no variable's fault."""
    return isinstance(error, OSError) and error.errno in _FULL


def _lasts(name: Any) -> bool:
    return isinstance(name, str) and not (name.startswith("__") and name.endswith("__"))
