"""Keeping a context's variables in a file, and bringing them back.

They are written by a forked child, which a value that hangs, crashes or eats memory while it is pickled ends
instead of the context. It is then named, and another child writes the others.
"""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import select
import signal
import sys
import warnings
from time import monotonic
from typing import Any, BinaryIO, Callable, Dict, NamedTuple, NoReturn, Optional, Tuple

from . import frozenfile
from .descriptors import write_all
from .freezer import Freezer, Job, is_full
from .frozenfile import Damaged
from .refusal import BUSY, FILE_ERROR, INTERNAL, Refused, from_os_error
from .situation import Start
from .thawing import Thawing

SECONDS = 60.0
"""For one checkpoint of one context, unless told."""

_REASON = 300
_NAME = 200
_NAMED = 500
_NO_ROOM = (
    "The sandbox's disk has no room for the variables, which are kept there: give it more with disk=, or delete some. "
    "What was kept before is still there."
)
# A list of lists of lists; deeper ones end the child.
_RECURSION = 20_000


class Report(NamedTuple):
    """How many variables were kept or brought back, and the reasons for those that were not."""

    saved: int
    lost: Dict[str, str]
    flags: int = 0

    def wire(self) -> Dict[str, Any]:
        """What fits into an answer; `more` counts those that are lost without being named."""
        named = list(self.lost.items())[:_NAMED]
        return {
            "saved": self.saved,
            "lost": {name[:_NAME]: why[:_REASON] for name, why in named},
            "more": max(0, len(self.lost) - _NAMED),
        }


def freeze(
    namespace: Dict[str, Any],
    path: str,
    start: Start,
    *,
    flags: int = 0,
    seconds: Optional[float] = None,
    durable: bool = True,
    partial: bool = False,
    beside: Optional[Dict[str, str]] = None,
) -> Report:
    """Write the variables to the file at `path`. What was there stays until the new is whole and on disk.

    Args:
        start: how things stood before the first cell.
        flags: the compiler's, which `thaw` gives back.
        seconds: how long it may take.
        durable: wait until it is on disk.
        partial: have those that the disk has no room for named as lost, and keep the others.
        beside: what is lost beside variables, with the reasons.

    Raises:
        Refused: it took too long, or the disk is full. The file is as it was.
    """
    new = "%s.new" % path
    deadline = monotonic() + (SECONDS if seconds is None else seconds)
    skipped = dict(beside or {})
    try:
        with open(new, "wb") as file:
            if hasattr(os, "fchmod"):  # WebAssembly has no modes
                os.fchmod(file.fileno(), 0o600)
            while True:
                job = Job(namespace, start, flags, skipped, partial)
                culprit, outcome = _in_child(job, file, deadline)
                if culprit is None:
                    break
                skipped[culprit] = outcome["reason"]
            if durable:
                os.fsync(file.fileno())
        os.rename(new, path)
        if durable:
            _sync_directory(os.path.dirname(path))
    except BaseException as error:
        _discard(new)
        if is_full(error):
            raise Refused(FILE_ERROR, _NO_ROOM, errno.ENOSPC, path) from error
        if isinstance(error, OSError):
            raise from_os_error(error, path) from error
        raise
    return Report(outcome["saved"], outcome["lost"], flags)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it was never made


def _in_child(job: Job, file: BinaryIO, deadline: float) -> Tuple[Optional[str], Dict[str, Any]]:
    """Have a child write all of it. The variable that ended it with the reason, or None with what it says.

    Raises:
        Refused: no variable is to blame.
    """
    file.seek(0)
    file.truncate()
    said, current, death = spare(job, file, deadline)
    if "saved" in said:
        return None, said
    if "errno" in said:
        raise OSError(said["errno"], os.strerror(said["errno"]))
    if current is None or monotonic() >= deadline:
        raise Refused(
            BUSY if said.get("late") else INTERNAL,
            "The variables could not be kept: %s. What was kept before is still there."
            % ("it took too long" if said.get("late") else said.get("failed", "the process that did it died")),
        )
    return current, {"reason": "keeping it took too long" if said.get("late") else death}


def _forked(job: Job, file: BinaryIO, deadline: float) -> Tuple[Dict[str, Any], Optional[str], str]:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has threads; what they hold at the fork can cost the child its time
        pid = os.fork()
    if pid == 0:
        _write_in_child(job, file, writer)
    os.close(writer)
    return watch_child(reader, pid, deadline)


spare: Callable[[Job, BinaryIO, float], Tuple[Dict[str, Any], Optional[str], str]] = _forked
"""Has somebody write who can be spared, until a time: what he says at last, the variable that he was at, and how he
died. Where there is no fork, something else is put here."""


def watch_child(
    reader: int, pid: int, deadline: float, end: Optional[Callable[[int], int]] = None
) -> Tuple[Dict[str, Any], Optional[str], str]:
    """What a child says through a pipe, which variable it was at, and how it ended, which it does now.

    `end` has it end, and gives its status; by itself this kills it.
    """
    try:
        said, current = _listen(reader, deadline)
    finally:
        os.close(reader)
        status = (end or _end)(pid)
    return said, current, _death(status)


def _listen(reader: int, deadline: float) -> Tuple[Dict[str, Any], Optional[str]]:
    """What the child says at last, and which variable it was at. A variable may take half of the time that is left."""
    current: Optional[str] = None
    buffered = b""
    while True:
        left = deadline - monotonic()
        limit = left if current is None else left / 2
        if left <= 0 or not select.select([reader], [], [], limit)[0]:
            return {"late": True}, current
        data = os.read(reader, 1 << 16)
        if not data:
            return {}, current
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "at" not in said:
                return said, None
            current = said["at"]


def _end(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ProcessLookupError, ChildProcessError):
        return 0  # the cell's own code collects children


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "keeping it crashed Python with signal %d" % os.WTERMSIG(status)
    return "keeping it ended Python"


def _write_in_child(job: Job, file: BinaryIO, pipe: int) -> NoReturn:
    try:
        _be_first_to_die()
        write(job, file, lambda message: _say(pipe, message))
    finally:
        os._exit(0)


def write(job: Job, file: BinaryIO, say: Callable[[Dict[str, Any]], None]) -> None:
    """In the process that can be spared: do it, and say at which variable it is, and at last how it went."""
    try:
        gc.disable()
        sys.setrecursionlimit(max(_RECURSION, sys.getrecursionlimit()))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout = sys.stderr = _Nowhere()
        said = Freezer(job, file, lambda name: say({"at": name})).run()
    except OSError as error:
        said = {"errno": error.errno or 5}
    except BaseException as error:  # noqa: BLE001  # it must not unwind into the cell's code
        said = {"failed": repr(error)[:_REASON]}
    say(said)


class _Nowhere(io.TextIOBase):
    """Nobody listens."""

    def write(self, text: str) -> int:
        return len(text)


def _be_first_to_die() -> None:
    """When memory is full, rather this than the variables themselves."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass


def _say(pipe: int, message: Dict[str, Any]) -> None:
    write_all(pipe, json.dumps(message).encode("ascii") + b"\n")


def thaw(namespace: Dict[str, Any], path: str) -> Report:
    """Bring back what `freeze` has written, in the context itself: imports, functions and classes first.

    An interrupt gives up the variable that is being restored, and the others follow.

    Raises:
        Refused: there is no such file, or it is damaged.
    """
    try:
        with open(path, "rb") as file:
            index = frozenfile.read(file)
            thawing = Thawing(namespace, file, index)
            thawing.run()
    except OSError as error:
        raise from_os_error(error, path) from error
    except Damaged as error:
        raise Refused(INTERNAL, "The variables that were kept cannot be read: %s" % error) from None
    return Report(len(thawing.found), {**index.lost, **thawing.lost}, index.flags)


__all__ = ["SECONDS", "Report", "Start", "freeze", "thaw", "watch_child", "write"]
