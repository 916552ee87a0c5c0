"""A context that is about to be forked into other sandboxes: brought to the point of its fork, and later let on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

from ..guest.twinning import GO, NOT_MADE
from . import inspection, kernel
from .shadows import Context
from .tracing import CALLS, NotStopped, Registers, RestartableSequence, Task

_PATIENCE = 2.0
_CHILD_SETTID = 0x01000000
_NO_CALL = (1 << 64) - 1
_FORKS = (CALLS["clone"], CALLS["fork"])


class NotForking(Exception):
    """A context that said it would fork did something else."""


class Original(NamedTuple):
    """A context stopped where it forks, with all that a twin goes on with. The kernel's word, but for the pointers."""

    context: Context
    task: Task
    registers: Registers
    extended_state: bytes
    signal_mask: int
    sequence: RestartableSequence
    directory: str
    umask: int
    descriptors: list[int]

    @property
    def child_thread_id(self) -> int:
        """Where a child of its fork wants to find its own number."""
        registers = self.registers
        clones = registers.orig_rax == CALLS["clone"] and registers.rdi & _CHILD_SETTID
        return registers.r10 if clones else 0

    def let_on(self) -> None:
        """Have it go on as the parent of a fork that it did not make."""
        registers = self.task.registers
        registers.orig_rax = _NO_CALL
        self.task.registers = registers
        self.task.resume(to_syscall=True)
        self.task.wait(_PATIENCE)
        registers = self.task.registers
        registers.rax = NOT_MADE
        self.task.registers = registers
        self.task.detach()


def bring(context: Context) -> Original:
    """Have a context that stands still go to its fork, and stop it there.

    Raises:
        NotForking: it goes elsewhere, and goes on.
        OSError: it is gone, or cannot be traced.
    """
    task = Task(context.task)
    try:
        task.interrupt()
        task.halt(task.wait(_PATIENCE))
        kernel.signal_thread(context.task, context.task, GO)
        _go_to_fork(task)
        facts = inspection.status(context.task)
        return Original(
            context,
            task,
            task.registers,
            task.extended_state,
            task.signal_mask,
            task.restartable_sequence,
            os.readlink(f"/proc/{context.task}/cwd"),
            int(facts["Umask"], 8),
            sorted(map(int, os.listdir(f"/proc/{context.task}/fd"))),
        )
    except NotStopped:
        # It sleeps: nobody has woken it up, or somebody else has before.
        with contextlib.suppress(OSError):
            task.catch(_PATIENCE)
            task.detach()
        raise NotForking("it does not stand still any more") from None
    except BaseException:
        with contextlib.suppress(OSError):
            task.detach()
        raise


def _go_to_fork(task: Task) -> None:
    end = time.monotonic() + _PATIENCE
    number = 0
    while time.monotonic() < end:
        task.resume(to_syscall=True, number=number)
        stop = task.wait(_PATIENCE)
        number = 0
        if not stop.event and stop.signal != signal.SIGTRAP | 0x80:
            number = stop.signal
        elif not stop.event and task.enters() in _FORKS:
            return
    raise NotForking("it does other things than it was asked to")
