"""What the kernel denies to the code in a sandbox, for those that root made with `audit=True`.

The kernel tells nobody but root, and root only through what is meant for the whole host. What there is, with the
instructions that a system call of another process costs more (a `getppid` has 338, an `open` and `close` 10,000;
counted on Linux 6.1 in an emulator, and as nanoseconds on 6.18):

- A BPF program at the end of every system call: 120, or 0.1 to 0.15 µs, as long as one such sandbox lives; not more for
  a second, since all of a state directory share it. Nobody else hears of it, and nothing stays behind. This it is.
- The audit subsystem with rules for the user of a sandbox: none, if a rule keeps all others out, else 560. But it can
  be switched on only for good: once it was, each new process of the host pays 240 until the next boot, even after it
  was switched off. Rules outlive a keeper that is killed. And what a sandbox is denied would be in the log of the
  kernel, of auditd and of the journal, so that hostile code could flood these and push out what others wait for.
- Programs at the end of single functions: 125 for an `open` and nothing for the rest, but a kernel in lockdown, as
  ours, refuses them, and at most 38 can share a function.
- Landlock's audit records need the audit subsystem, and Landlock is asked only after the file modes have agreed.
- fanotify tells only of what was allowed.

A name that rules hide is not there, so the kernel denies nothing: such a look is a missing file like any other. Nor
is `access` told of, which asks and does not do.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from ...policy.paths import in_workspace
from ...types import Denial
from ..settings import BirthFailed, Settings, started_at
from . import bpf, calls, program, shared
from .log import Log

if TYPE_CHECKING:
    from .program import Record

_TURN = 1.0
_MOST = 2000


def listen(settings: Settings, sandbox: str, first: int, uid: int, workdir: str) -> Listener:
    """Listen to a sandbox from now on.

    Raises:
        BirthFailed: this host does not allow it.
    """
    if settings.rootless:
        raise BirthFailed("audit=True needs root: the kernel tells nobody else what it denies.", "unsupported")
    try:
        return Listener(settings.layout.run, settings.layout.box(sandbox), first, uid, workdir)
    except (OSError, ValueError) as error:
        reason = f"audit=True cannot be: this host does not tell what its kernel denies ({error})."
        raise BirthFailed(reason, "unsupported") from error


class Listener:
    """Listens to one sandbox. Its keeper looks once a second: what comes faster than that fits is counted only.

    Raises:
        OSError, ValueError: this host does not allow it.
    """

    def __init__(self, run: str, box: str, first: int, uid: int, workdir: str) -> None:
        self._first, self._uid, self._workdir = first, uid, workdir
        self._next = 0.0
        self._told = 0
        self._mounts: dict[int, str] = {}
        self._log = Log(box)
        with contextlib.ExitStack() as undo:
            self._shared = shared.join(run)
            undo.callback(self._shared.close)
            self._ring = shared.ring()
            undo.callback(self._ring.close)
            _sweep(self._shared)
            keeper = os.getpid()
            box_of = program.BOX.pack(*program.namespace(first), 0, keeper, started_at(keeper))
            bpf.update(self._shared.boxes, uid, box_of)
            bpf.update(self._shared.rings, uid, self._ring.fd.to_bytes(4, "little"))
            undo.pop_all()

    def due(self, now: float) -> float:
        """Seconds until it wants to look again."""
        return max(0.0, self._next - now)

    def look(self, now: float, *, at_once: bool = False) -> None:
        """Write down what has come."""
        if self.due(now) > 0 and not at_once:
            return
        self._next = now + _TURN
        self._mounts = {}  # numbers of mounts are used again
        with contextlib.suppress(OSError):  # a full disk, for instance, is no reason to end a sandbox
            found = [denial for data in self._ring.records(_MOST) for denial in self._denials(program.parse(data))]
            lost = program.BOX.unpack(bpf.lookup(self._shared.boxes, self._uid, program.BOX.size))[2]
            if found or lost > self._told:
                told, self._told = self._told, lost
                self._log.add(found, lost - told)

    def close(self) -> None:
        """Stop listening. For a keeper that is killed the next one does."""
        _forget(self._shared, self._uid)
        self._ring.close()
        self._shared.close()

    def _denials(self, record: Record) -> list[Denial]:
        # The guest's own calls are those of the file API, which notes them itself.
        if record.pid == 1 or record.call not in calls.SHAPES:
            return []
        when = record.time / 1e9 + time.time() - time.monotonic()
        operation = calls.operation(record.call, record.arguments)
        process = f"{os.fsdecode(record.command)} ({record.pid})"
        paths = [self._path(*each) for each in zip(record.names, record.bases, strict=True)]
        words = (operation, f"{operation} to")
        return [
            Denial(when, path, word, "kernel", process)
            for path, word in zip(paths, words, strict=False)
            if path is not None
        ]

    def _path(self, name: bytes | None, base: tuple[int, list[bytes]] | None) -> str | None:
        """As the process sees it; None for what has no path."""
        text = "" if name is None else os.fsdecode(name)
        if name is not None and len(name) >= program.NAME - 1:
            text += "…"
        if text.startswith("/"):
            return in_workspace(text, self._workdir)
        mount = None if base is None else self._mount(base[0])
        if base is None or mount is None:
            return f"?/{text}" if text else None
        above = "/".join(map(os.fsdecode, base[1]))
        return in_workspace(os.path.join(mount, above, text), self._workdir)

    def _mount(self, number: int) -> str | None:
        """Where something is mounted inside."""
        if number not in self._mounts:
            with contextlib.suppress(OSError), open(f"/proc/{self._first}/mountinfo", "rb") as file:
                rows = [line.split(b" ", 5) for line in file]
                self._mounts = {int(row[0]): os.fsdecode(_unescaped(row[4])) for row in rows}
        return self._mounts.get(number)


def _sweep(used: shared.Shared) -> None:
    """Forget the sandboxes of keepers that were killed: what is kept for them is not little."""
    for uid in bpf.keys(used.boxes):
        with contextlib.suppress(OSError):
            *_, keeper, started = program.BOX.unpack(bpf.lookup(used.boxes, uid, program.BOX.size))
            if started_at(keeper) == started:
                continue
        _forget(used, uid)


def _forget(used: shared.Shared, uid: int) -> None:
    for fd in (used.rings, used.boxes):
        with contextlib.suppress(OSError):
            bpf.delete(fd, uid)


def _unescaped(path: bytes) -> bytes:
    return path.decode("unicode_escape").encode("latin-1") if b"\\" in path else path
