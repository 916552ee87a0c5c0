"""Contexts that the keeper makes: each is two tasks that share one memory.

The context itself is behind the sandbox's wall. Its shadow is outside, in the keeper's own pid namespace: it was
there first, made the context, and has been stopped ever since. From it the memory of the context can be forked into
another sandbox, which nobody inside a pid namespace can do (see `livefork`). A shadow has all rights and a memory
that is hostile, so it never runs an instruction of that: its registers point to where nothing can be, and it dies
with its keeper.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import sys
import time
from typing import Any, NamedTuple, NoReturn

from ..guest import contextprocess
from ..guest.shared import SIZE
from . import cgroups, enclosing, inspection, kernel, messages, usage
from .batch import Batch, Scratch
from .settings import BirthFailed, Settings
from .tracing import CALLS, EXIT_KILL, TRACE_CLONE, TRACE_FORK, Strayed, Task

MOST = 64
# A guest that makes and kills contexts without end gets so many at once, and then so many a second.
_PER_SECOND = 20.0
_PATIENCE = 5.0
_DYING = 2.0
_CLONE_VM, _CLONE_SIGHAND = 0x100, 0x800
SHARED_MEMORY = _CLONE_VM | _CLONE_SIGHAND
OPTIONS = TRACE_CLONE | TRACE_FORK | EXIT_KILL
# The descriptors of a context, and after them those that its wall is made with.
WIRE, TAPS, PAGE, FIRST, HOME, DOORS = 3, (4, 5), 6, 7, 8, 9
LAST_DESCRIPTOR = 0xFFFFFFFF
# Above what a program can have mapped.
_NOWHERE = 0x7FFFFFFFF000
_UNREGISTER = 1
_VICTIM = "1000"
# What a shadow is called that was made for another sandbox.
GIVEN = "atoll-shadow"
_WALL = 0x40000000


Answer = tuple[dict[str, Any], list[int]]


class Ends(NamedTuple):
    """What guest and context share; the guest's ends come first."""

    wire: int
    stdout: int
    stderr: int
    page: int
    context_wire: int
    context_stdout: int
    context_stderr: int

    @property
    def of_guest(self) -> tuple[int, ...]:
        return self[:4]

    @property
    def of_context(self) -> tuple[int, ...]:
        """In the order of the descriptors that a context has from 1 on."""
        return self.context_stdout, self.context_stderr, self.context_wire, self.stdout, self.stderr, self.page

    @property
    def of_context_alone(self) -> tuple[int, ...]:
        return self[4:]

    @staticmethod
    def close(fds: tuple[int, ...]) -> None:
        for fd in fds:
            os.close(fd)


class Context:
    """A context and its shadow, as the keeper sees them; `pid` is what the context calls itself."""

    def __init__(self, task: int, pid: int, shadow: Task) -> None:
        self.number = 0
        self.task = task
        self.pid = pid
        self.shadow = shadow
        self.page: inspection.Identity = (0, 0)
        self.pidfd = os.pidfd_open(task)


class Shadows:
    """Those of one sandbox. Made and used in its keeper."""

    ANY = _WALL

    def __init__(self, settings: Settings, sandbox: str) -> None:
        self._settings = settings
        self._group = cgroups.Group(settings.hierarchy, sandbox) if settings.hierarchy else None
        self.contexts: dict[int, Context] = {}
        self._allowance = float(MOST)
        self._counted = time.monotonic()
        self._made = 0
        self._namespace: inspection.Identity | None = None

    def know(self, first: int) -> None:
        """Remember which processes are this sandbox's, for when its first one is gone."""
        if self._settings.live:  # without root nobody may look, and there is nothing to tell apart
            self._namespace = inspection.identity(f"/proc/{first}/ns/pid")

    def bear(self, first: int, uid: int, workdir: str) -> Answer:
        """Make a context in the sandbox of a first process; gives what its guest is told, and the guest's descriptors.

        It never raises: where it cannot be done here, the guest is told so and forks it itself.
        """
        try:
            self._check_room()
            ends = make_ends(uid)
        except BirthFailed as failure:
            return {"busy": str(failure)}, []
        except OSError as error:
            return {"unable": str(error)}, []
        try:
            context = self._bear(first, ends, workdir)
        except (OSError, Strayed) as error:
            ends.close(ends.of_guest)
            sys.stderr.write(f"A context cannot be made by its keeper, so its guest does: {error}.\n")
            return {"unable": str(error)}, []
        finally:
            ends.close(ends.of_context_alone)
        self.add(context, ends.page)
        return {"pid": context.pid, "number": context.number}, [*ends.of_guest]

    def add(self, context: Context, page: int) -> None:
        """`page` is the memory that it shares with its guest."""
        self._made += 1
        context.number = self._made
        context.page = inspection.identity(page)
        self.contexts[context.pidfd] = context

    def _check_room(self) -> None:
        now = time.monotonic()
        self._allowance = min(float(MOST), self._allowance + (now - self._counted) * _PER_SECOND)
        self._counted = now
        if len(self.contexts) >= MOST or self._allowance < 1:
            raise BirthFailed("This sandbox makes too many contexts.", "busy")
        if self._group is None or not self._group.has_room():
            raise BirthFailed("This sandbox has as many processes as it may have.", "busy")
        self._allowance -= 1

    def _bear(self, first: int, ends: Ends, workdir: str) -> Context:
        assert self._group is not None  # noqa: S101 - has room
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        shelter, doors = self._group.shelter(), self._group.doors()
        keeper = os.getpid()
        shadow = os.fork()
        if shadow == 0:
            _cast(first, keeper, ends, shelter, doors)
        try:
            task, made = _split(shadow, ends)
            try:
                self._enclose(first, made, len(doors), workdir)
                _park(task)
                context = Context(made.id, inner_pid(made.id), task)
            except BaseException:
                os.kill(made.id, signal.SIGKILL)
                raise
            made.detach()
        except BaseException:
            end(shadow)
            raise
        return context

    def _enclose(self, first: int, task: Task, doors: int, workdir: str) -> None:
        """What must be done from outside; then have it join and close its wall."""
        settle(first, task.id)
        scratch = Scratch(task)
        batch = Batch(scratch)
        enclosing.join_groups(batch, range(DOORS, DOORS + doors))
        enclosing.enclose(batch, self._settings, FIRST, workdir)
        batch.run(task, inner_pid(task.id))
        scratch.remove(task)
        task.restore()

    def end_all(self) -> None:
        """Kill all shadows, also those that are not this process's children: a context is not gone while its shadow,
        who is its parent, does not take notice."""
        for context in self.contexts.values():
            end(context.shadow.id)

    def tidy(self) -> None:
        """Take notice of the ends of those that came to this process after they were made for other sandboxes."""
        for child in inspection.children(os.getpid()):
            if self._was_given(child) and usage.is_zombie(child):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, _WALL | os.WNOHANG)

    def own(self, children: set[int]) -> set[int]:
        """Those of this process's children that do not belong to other sandboxes."""
        return {child for child in children if not self._was_given(child)}

    def _was_given(self, child: int) -> bool:
        """None can have been before it is known which processes are this sandbox's."""
        return self._namespace is not None and was_given(child, self._namespace)

    def bury(self, pidfd: int) -> dict[str, int]:
        """After a context has ended, of which its `pidfd` tells; gives what its guest is told."""
        context = self.contexts.pop(pidfd)
        status = _exit_status(context.task)
        end(context.shadow.id)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(context.task, _WALL)
        os.close(pidfd)
        return {"number": context.number, "status": status}


def was_given(child: int, namespace: inspection.Identity | None = None) -> bool:
    """Whether a child of this process is a context, or the shadow of one, that is not of the sandbox with a `namespace`
    of processes, if there is one."""
    try:
        facts = inspection.status(child)
        if facts["Name"] == GIVEN:
            return True
        inside = len(facts["NSpid"].split()) > len(inspection.status(os.getpid())["NSpid"].split())
        return inside and inspection.identity(f"/proc/{child}/ns/pid") != namespace
    except OSError:
        return False


def make_ends(uid: int) -> Ends:
    """Pipes that belong to the sandbox's user, who may open them again by name; and memory of a size that stays."""
    made: list[int] = []
    try:
        ours, theirs = messages.pair()
        made += [ours.detach(), theirs.detach()]
        made += [*os.pipe2(os.O_CLOEXEC), *os.pipe2(os.O_CLOEXEC)]
        made.append(os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        for fd in made[2:]:
            os.fchown(fd, uid, uid)
        os.ftruncate(made[6], SIZE)
        fcntl.fcntl(made[6], fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        for fd in made:
            os.close(fd)
        raise
    wire, context_wire, stdout, context_stdout, stderr, context_stderr, page = made
    return Ends(wire, stdout, stderr, page, context_wire, context_stdout, context_stderr)


def _cast(first: int, keeper: int, ends: Ends, shelter: str, doors: list[str]) -> NoReturn:
    """In the shadow, while it still runs: get everything ready, fork, and be stopped there for ever."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        wanted = [*ends.of_context, os.pidfd_open(first), os.pidfd_open(keeper)]
        wanted += [os.open(door, os.O_WRONLY | os.O_CLOEXEC) for door in doors]
        above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in wanted]
        for number, fd in enumerate(above, 1):
            os.dup2(fd, number, inheritable=number <= 2)
        kernel.close_from(1 + len(above))
        os.chdir("/")
        cgroups.write(shelter, "0")
        kernel.setns(FIRST, kernel.CLONE_NEWPID)
        os.write(WIRE, b"r")
        os.read(WIRE, 1)
        if os.fork() == 0:
            # By now the wall stands around this process.
            contextprocess.be_born(WIRE, TAPS, PAGE)
    finally:
        os._exit(1)


def _split(shadow: int, ends: Ends) -> tuple[Task, Task]:
    """Trace a shadow that is ready, and have its fork share its memory; gives it and what it has made, both stopped."""
    with socket.socket(fileno=os.dup(ends.wire)) as wire:
        wire.settimeout(_PATIENCE)
        if not wire.recv(1):
            raise OSError("a shadow died before it was ready")
        task = Task(shadow, OPTIONS)
        task.interrupt()
        task.halt(task.wait())
        wire.send(b"g")
    end = time.monotonic() + _PATIENCE
    task.resume(to_syscall=True)
    while task.wait().event or task.enters() not in (CALLS["clone"], CALLS["fork"]):
        if time.monotonic() > end:
            raise TimeoutError("a shadow did not fork")
        task.resume(to_syscall=True)
    registers = task.registers
    registers.rdi |= SHARED_MEMORY
    task.registers = registers
    task.resume(to_syscall=True)
    if not task.wait().event:
        raise OSError("a shadow could not fork")
    made = Task.adopted(task.message)
    made.wait()
    # To the end of its own call: there it can be made to do others.
    task.resume(to_syscall=True)
    task.wait()
    sequence = task.restartable_sequence
    if sequence.pointer:
        made.begin()
        made.call("rseq", sequence.pointer, sequence.size, 0, sequence.signature)
    return task, made


def _park(task: Task) -> None:
    """Leave a shadow with nothing open and with nowhere to go."""
    sequence = task.restartable_sequence
    task.begin()
    if sequence.pointer:
        task.call("rseq", sequence.pointer, sequence.size, _UNREGISTER, sequence.signature)
    # What it makes next is born where it is itself.
    task.call("setns", HOME, kernel.CLONE_NEWPID)
    task.call("close_range", 0, LAST_DESCRIPTOR, 0)
    lose(task)


def lose(task: Task) -> None:
    """If it ever went on, it would die of that: its signals are blocked, and where it is sent nothing can be."""
    registers = task.prepared()
    registers.rip = _NOWHERE
    task.registers = registers


def settle(first: int, task: int) -> None:
    """Give a task what the first process gives to whatever it starts: its limits, and its place when memory is full."""
    copy_limits(first, task)
    cgroups.write(f"/proc/{task}/oom_score_adj", _VICTIM)


def copy_limits(source: int, target: int) -> None:
    """Give a process the limits of another one, with the mark that is one of them (guest/marks.py)."""
    ours = _limits(target)
    for kind, wanted in enumerate(_limits(source)):
        if wanted != ours[kind]:
            resource.prlimit(target, kind, wanted)


def _limits(process: int) -> list[tuple[int, int]]:
    """In the order of their numbers. Asking for them would need a right that root may not have."""
    with open(f"/proc/{process}/limits", "rb") as file:
        lines = file.read().splitlines()[1:]
    return [(_limit(line[26:47]), _limit(line[47:68])) for line in lines]


def _limit(text: bytes) -> int:
    return resource.RLIM_INFINITY if text.strip() == b"unlimited" else int(text)


def inner_pid(task: int) -> int:
    """What a process calls itself."""
    return int(inspection.status(task)["NSpid"].split()[-1])


def _exit_status(task: int) -> int:
    """How a process ended that nobody has waited for yet. Of one that is gone altogether: with its shadow, killed."""
    try:
        with open(f"/proc/{task}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[49])
    except (FileNotFoundError, ProcessLookupError):
        return int(signal.SIGKILL)


def end(task: int) -> None:
    """Kill a task and wait for its end, unless that is for somebody else to see first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(task, signal.SIGKILL)
    until = time.monotonic() + _DYING
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            found, status = os.waitpid(task, _WALL | os.WNOHANG)
            if found and not os.WIFSTOPPED(status):
                return
            os.sched_yield()


def tell(control: socket.socket, kind: bytes, message: dict[str, Any], fds: list[int]) -> None:
    """Give a guest an order, with descriptors that are closed here.

    Raises:
        OSError: it does not listen, or is gone.
    """
    try:
        data = [kind + messages.encode(message)]
        if fds:
            socket.send_fds(control, data, fds)
        else:
            control.send(data[0])
    finally:
        for fd in fds:
            os.close(fd)


def rehearse(settings: Settings) -> None:
    """Go through what a birth is made of, with a process that is gone afterwards: see `rehearsal`."""
    child = os.fork()
    if child == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        while True:
            signal.pause()
    try:
        ends = make_ends(os.getuid())
        ends.close(tuple(ends))
        task = Task(child, OPTIONS)
        task.interrupt()
        task.halt(task.wait())
        settle(os.getpid(), child)
        scratch = Scratch(task)
        enclosing.enclose(Batch(scratch), settings, FIRST, "/")
        batch = Batch(scratch)
        batch.call("umask", 0o022)
        batch.run(task, inner_pid(child))
        scratch.remove(task)
        task.restore()
        task.detach()
    finally:
        end(child)
