"""Making a twin of a context in another sandbox, from a print of its memory.

The twin's memory is hostile from its first moment, so it is put behind the wall by calls that it is made to make,
and looked at from outside before it makes a step of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..guest.shared import SIZE
from . import cgroups, enclosing, inspection, kernel, shadows
from .batch import Batch
from .inspection import Broken, Identity
from .originals import Original
from .prints import FORK, Print, shared_mappings
from .settings import Settings
from .shadows import LAST_DESCRIPTOR, SHARED_MEMORY, Ends
from .tracing import Task

_SETTID_CLEARTID = 0x01200000
_KEEPER, _FIRST, _DOORS = 0, 7, 8
_READ_WRITE, _SHARED_FIXED = 3, 0x11
_PATIENCE = 30.0
_AT_ONCE = 100
_NO_CALL = (1 << 64) - 1


class Place(NamedTuple):
    """A sandbox that gets a twin, as its own keeper tells of it."""

    id: str
    first: int
    uid: int
    workdir: str


class Twin(NamedTuple):
    """A context in its new place, stopped before its first step, with its shadow and the guest's descriptors."""

    task: Task
    pid: int
    shadow: Task
    ends: Ends


class Surgeon:
    """Makes twins of one original for one place at a time."""

    def __init__(self, settings: Settings, original: Original, source: Print) -> None:
        self._settings = settings
        self._original = original
        self._source = source
        batch = Batch(source.scratch)
        batch.call("close_range", 0, LAST_DESCRIPTOR, 0)
        batch.call("pidfd_open", os.getpid(), 0)
        batch.run(source.task, source.task.id)

    def make(self, place: Place, *, last: bool) -> Twin:
        """Make a twin; the `last` one takes the print itself, which is gone if it fails.

        Raises:
            OSError, tracing.Strayed, Broken: it could not be made; nothing of it is left.
        """
        assert self._settings.hierarchy is not None  # noqa: S101 - live forks need one
        group = cgroups.Group(self._settings.hierarchy, place.id)
        ends = shadows.make_ends(place.uid)
        made: list[Task] = [self._source.task] if last else []
        try:
            shadow = self._shadow(group, last=last)
            made = [shadow]
            task = self._task(shadow, place, group, ends)
            made.append(task)
            pid = shadows.inner_pid(task.id)
            self._enclose(task, pid, place, len(group.doors()))
            self._inspect(task.id, place, ends)
            self._resemble(task)
        except BaseException:
            for each in made:
                shadows.end(each.id)
            ends.close(ends.of_guest)
            raise
        finally:
            ends.close(ends.of_context_alone)
        return Twin(task, pid, shadow, ends)

    def _shadow(self, group: cgroups.Group, *, last: bool) -> Task:
        """What the twin's memory is counted with, from the first copy on."""
        source = self._source
        with _opened(group.shelter()) as shelter:
            batch = Batch(source.scratch)
            batch.call("pidfd_getfd", _KEEPER, shelter, 0)
            batch.call("write", 1, batch.data(b"0"), 1)
            batch.call("close", 1)
            batch.run(source.task, source.task.id)
        if last:
            return source.task
        made = Task.adopted(source.task.clone(FORK, timeout=_PATIENCE), source.task.instruction)
        made.wait()
        made.begin()
        return made

    def _task(self, shadow: Task, place: Place, group: cgroups.Group, ends: Ends) -> Task:
        with contextlib.ExitStack() as stack:
            first = os.pidfd_open(place.first)
            stack.callback(os.close, first)
            doors = [stack.enter_context(_opened(door)) for door in group.doors()]
            batch = Batch(self._source.scratch)
            for fd in (*ends.of_context, first, *doors):
                batch.call("pidfd_getfd", _KEEPER, fd, 0)
            batch.call("setns", _FIRST, kernel.CLONE_NEWPID)
            batch.run(shadow, shadow.id)
        flags = SHARED_MEMORY | _SETTID_CLEARTID | signal.SIGCHLD
        made = Task.adopted(shadow.clone(flags, self._original.child_thread_id), shadow.instruction)
        try:
            made.wait()
            made.begin()
            batch = Batch(self._source.scratch)
            batch.call("setns", _KEEPER, kernel.CLONE_NEWPID)
            batch.call("close_range", 0, LAST_DESCRIPTOR, 0)
            batch.call("prctl", kernel.PR_SET_NAME, batch.text(shadows.GIVEN), 0, 0, 0)
            batch.run(shadow, shadow.id)
        except BaseException:
            shadows.end(made.id)
            raise
        shadows.lose(shadow)
        return made

    def _enclose(self, task: Task, pid: int, place: Place, doors: int) -> None:
        original = self._original
        shadows.settle(place.first, task.id)
        batch = Batch(self._source.scratch)
        enclosing.join_groups(batch, range(_DOORS, _DOORS + doors))
        enclosing.enclose(batch, self._settings, _FIRST, place.workdir)
        batch.call("close", 0)
        null = batch.data(struct.pack("QQQ", os.O_RDWR, 0, 0))
        batch.call("openat2", kernel.AT_FDCWD, batch.text(os.devnull), null, 24)
        batch.call("mmap", self._source.page, SIZE, _READ_WRITE, _SHARED_FIXED, shadows.PAGE, 0)
        batch.call("close", shadows.PAGE)
        for number in (1, 2):
            # What it starts has them, too.
            batch.call("fcntl", number, fcntl.F_SETFD, 0)
        batch.call("setsid")
        batch.call("umask", original.umask)
        batch.call("chdir", batch.text(original.directory), may_fail=True)
        sequence = original.sequence
        if sequence.pointer:
            batch.call("rseq", sequence.pointer, sequence.size, 0, sequence.signature, may_fail=True)
        batch.run(task, pid)
        self._fill_gaps(task, pid)
        self._source.scratch.remove(task)

    def _fill_gaps(self, task: Task, pid: int) -> None:
        """What its original has open has no other meaning in the twin: it is something that can only be closed."""
        lost = [number for number in self._original.descriptors if number >= shadows.PAGE]
        for start in range(0, len(lost), _AT_ONCE):
            batch = Batch(self._source.scratch)
            how = batch.data(struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, 0))
            batch.call("openat2", kernel.AT_FDCWD, batch.text(os.devnull), how, 24)
            opened = self._lowest(lost[:start])
            for number in lost[start : start + _AT_ONCE]:
                if number != opened:
                    batch.call("dup3", opened, number, os.O_CLOEXEC)
            if opened not in lost:
                batch.call("close", opened)
            batch.run(task, pid)

    def _lowest(self, filled: list[int]) -> int:
        taken = {*range(shadows.PAGE), *filled}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _inspect(self, task: int, place: Place, ends: Ends) -> None:
        allowed = {inspection.identity(fd) for fd in ends.of_context}
        inspection.check_joined(task, place.first, place.uid)
        inspection.check_descriptors(task, allowed)
        self._check_memory(task, inspection.identity(ends.page))

    def _check_memory(self, task: int, page: Identity) -> None:
        if any(each.identity != page for each in shared_mappings(task)):
            raise Broken("a twin shares memory with others")

    def _resemble(self, task: Task) -> None:
        """Have it be where its original is, as the child of its fork."""
        original = self._original
        registers = original.registers.copy()
        registers.rax, registers.orig_rax = 0, _NO_CALL
        task.registers = registers
        task.extended_state = original.extended_state
        task.signal_mask = original.signal_mask


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
