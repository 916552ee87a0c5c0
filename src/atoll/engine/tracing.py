"""Stopping other tasks and having them make system calls, by ptrace.

A task is seized, interrupted and stopped without noticing: its registers, its signal mask and the system call that
it waits in are afterwards what they were. All calls for one task must come from one thread. Nothing that a stopped
task holds in its memory is believed: where it is made to go on is looked up in what the kernel says, and a call is
let through only when the kernel says at its entry that it is the one that was meant, to the last argument. Who else
shares that memory may change it at any time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from typing import NamedTuple

from . import kernel

TIMEOUT = 5.0

_CONT, _DETACH, _SYSCALL, _SEIZE, _INTERRUPT = 7, 17, 24, 0x4206, 0x4207
_GETREGS, _SETREGS = 12, 13
_GETSIGMASK, _SETSIGMASK = 0x420A, 0x420B
_GET_SYSCALL, _SYSCALL_ENTRY = 0x420E, 1
_SYSCALLS_ARE_GOOD = 1
_WALL = 0x40000000
EVENT_STOP = 128
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_MASK_SIZE = 8
_EVERYTHING = (1 << 64) - 1
_INSTRUCTION = b"\x0f\x05"
# What the kernel says of its own code in a process: flags, offset, device, inode and name.
_KERNEL_CODE = [b"r-xp", b"00000000", b"00:00", b"0", b"[vdso]\n"]
_PAUSE = 0.005
_STOPS = (signal.SIGCHLD,)
_NO_CALL = (1 << 64) - 1

# The numbers of x86-64, and how the kernel calls it: no other machine is known here.
_CALLS = {"mmap": 9, "munmap": 11, "chdir": 80}
_X86_64 = 0xC000003E
_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")

_libc = ctypes.CDLL(None, use_errno=True)
_raw = _libc.ptrace
_raw.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_raw.restype = ctypes.c_long


class TaskEnded(ProcessLookupError):
    """The task is gone, or was killed while it was stopped."""


class NotStopped(TimeoutError):
    """The task did not stop in time. It will when it can, and goes on once `settle` sees it, or its tracer ends."""


class Strayed(Exception):
    """The task did something else than it was made to do: its memory is not as it must be."""


class Registers(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_ulong)
        for name in (
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
            *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
        )
    )

    rax: int
    rip: int
    orig_rax: int

    def copy(self) -> Registers:
        return Registers.from_buffer_copy(self)


class Stop(NamedTuple):
    signal: int
    event: int


class _Entry(NamedTuple):
    """A system call that a task is about to make, in the kernel's words."""

    machine: int
    instruction: int
    number: int
    arguments: tuple[int, ...]


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def available() -> bool:
    """Whether this machine is one whose registers and instructions are known here."""
    return kernel.MACHINE == "x86_64" and ctypes.sizeof(ctypes.c_void_p) == 8


def _ptrace(request: int, task: int, address: int = 0, data: int = 0) -> int:
    result = int(_raw(request, task, address, data))
    if result < 0:
        number = ctypes.get_errno()
        if number == errno.ESRCH:
            raise TaskEnded(number, f"task {task} is gone, or not stopped")
        raise OSError(number, f"ptrace of {task}: {os.strerror(number)}")
    return result


# Tasks that were told to stop and had not when their time was over.
_behind: set[int] = set()


def leave_behind(task: int) -> None:
    """Have `settle` look after a task that was told to stop and has not yet."""
    _behind.add(task)


def settle() -> bool:
    """Let those go on that have stopped later than anybody waited; whether that is all of them.

    The others go on when this process ends.
    """
    for task in tuple(_behind):
        try:
            found, status = os.waitpid(task, _WALL | os.WNOHANG)
        except ChildProcessError:
            _behind.discard(task)
            continue
        if found:
            _behind.discard(task)
            if os.WIFSTOPPED(status):
                let_go(task)
    return not _behind


def let_go(task: int, number: int = 0) -> None:
    """Detach from a stopped task, whatever became of it."""
    try:
        _ptrace(_DETACH, task, 0, number)
    except OSError:
        pass  # it is gone


class Task:
    """One task, which is a thread, that this thread traces.

    Raises:
        TaskEnded: there is no such task any more. So do all its methods.
        OSError: it cannot be traced from here, or somebody else does.
    """

    def __init__(self, task: int) -> None:
        self.id = task
        self._saved: Registers | None = None
        self._mask = 0
        self._instruction = 0
        self._signals: list[int] = []
        self.first: Stop | None = None
        _ptrace(_SEIZE, task, 0, _SYSCALLS_ARE_GOOD)

    def interrupt(self) -> None:
        """Have it stop before its next instruction. If it is frozen, it stops when it is thawed."""
        _ptrace(_INTERRUPT, self.id)

    def stopped_now(self) -> Stop | None:
        """How it is stopped, if it is by now."""
        try:
            found, status = os.waitpid(self.id, _WALL | os.WNOHANG)
        except ChildProcessError:
            raise TaskEnded(errno.ESRCH, f"task {self.id} is gone") from None
        if not found:
            return None
        if not os.WIFSTOPPED(status):
            raise TaskEnded(errno.ESRCH, f"task {self.id} has ended")
        return Stop(os.WSTOPSIG(status), status >> 16)

    def wait(self, timeout: float = TIMEOUT) -> Stop:
        """Raises: NotStopped: it did not stop in time."""
        found = self.stopped_now()
        if found is not None:
            return found
        end = time.monotonic() + timeout
        # A stop is told by a signal. Blocked, it is not lost between a look and the next sleep.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        heard = False
        try:
            while (found := self.stopped_now()) is None:
                left = end - time.monotonic()
                if left <= 0:
                    leave_behind(self.id)
                    raise NotStopped(errno.ETIMEDOUT, f"task {self.id} did not stop within {timeout:g} seconds")
                # Another thread may have taken it.
                heard = signal.sigtimedwait(_STOPS, min(left, _PAUSE)) is not None or heard
            return found
        finally:
            if heard and callable(signal.getsignal(signal.SIGCHLD)):
                os.kill(os.getpid(), signal.SIGCHLD)  # it may have been about others as well
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def halt(self, stop: Stop, timeout: float = TIMEOUT) -> None:
        """After `interrupt`, and a first stop: a signal may have come before it, and is on its way then."""
        while stop.event != EVENT_STOP:
            self.interrupt()  # any stop makes the kernel forget that another one was wanted
            self.resume(number=0 if stop.signal == _SYSCALL_STOP or stop.event else stop.signal)
            stop = self.wait(timeout)

    def resume(self, *, to_syscall: bool = False, number: int = 0) -> None:
        """Have it go on, with a signal if there is a `number`."""
        _ptrace(_SYSCALL if to_syscall else _CONT, self.id, 0, number)

    def detach(self, number: int = 0) -> None:
        """Let it go as it is."""
        _ptrace(_DETACH, self.id, 0, number)

    @property
    def registers(self) -> Registers:
        found = Registers()
        _ptrace(_GETREGS, self.id, 0, ctypes.addressof(found))
        return found

    @registers.setter
    def registers(self, wanted: Registers) -> None:
        _ptrace(_SETREGS, self.id, 0, ctypes.addressof(wanted))

    @property
    def signal_mask(self) -> int:
        found = ctypes.c_uint64()
        _ptrace(_GETSIGMASK, self.id, _MASK_SIZE, ctypes.addressof(found))
        return found.value

    @signal_mask.setter
    def signal_mask(self, wanted: int) -> None:
        value = ctypes.c_uint64(wanted)
        _ptrace(_SETSIGMASK, self.id, _MASK_SIZE, ctypes.addressof(value))

    def _entry(self) -> _Entry | None:
        """What it is about to call, if it is stopped at the beginning of a call."""
        words = (ctypes.c_uint64 * 11)()
        _ptrace(_GET_SYSCALL, self.id, ctypes.sizeof(words), ctypes.addressof(words))
        if words[0] & 0xFF != _SYSCALL_ENTRY:
            return None
        return _Entry(int(words[0] >> 32), int(words[1]), int(words[3]), tuple(int(each) for each in words[4:10]))

    def begin(self) -> None:
        """Get ready for `call`; the task is stopped. No signal comes in between.

        Raises:
            Strayed: there is no place in it from which a system call can be made.
        """
        if self._saved is not None:
            return
        if not self._instruction:
            self._instruction = find_instruction(self.id)
        mask = self.signal_mask
        saved = self.registers
        self.signal_mask = _EVERYTHING
        self._mask, self._saved = mask, saved

    def call(self, name: str, *arguments: int, timeout: float = TIMEOUT) -> int:
        """Have it make a system call, after `begin`.

        Raises:
            OSError: the call failed; so it says.
            Strayed: it did not make this call.
        """
        self._enter(name, arguments, timeout)
        self.resume(to_syscall=True)
        self._await_stop(timeout)
        return self._result(name)

    def _enter(self, name: str, arguments: tuple[int, ...], timeout: float) -> None:
        """Have it begin a call; whatever else it is about to do is skipped.

        Raises:
            Strayed: it began another.
        """
        if self._saved is None:
            raise ValueError("call begin first")
        wanted = self._saved.copy()
        wanted.orig_rax = _NO_CALL
        wanted.rip, wanted.rax = self._instruction, _CALLS[name]
        values = tuple(each & _EVERYTHING for each in arguments) + (0,) * (len(_ARGUMENTS) - len(arguments))
        for register, value in zip(_ARGUMENTS, values, strict=True):
            setattr(wanted, register, value)
        self.registers = wanted
        self.resume(to_syscall=True)
        self._await_stop(timeout)
        meant = _Entry(_X86_64, self._instruction + len(_INSTRUCTION), _CALLS[name], values)
        if self._entry() != meant:
            found = self.registers
            found.orig_rax = _NO_CALL
            self.registers = found
            raise Strayed(f"task {self.id} began another call than {name}")

    def _result(self, name: str) -> int:
        found = self.registers
        if found.rip != self._instruction + len(_INSTRUCTION):
            raise Strayed(f"task {self.id} is not where it was sent")
        result = ctypes.c_long(found.rax).value
        if -4096 < result < 0:
            raise OSError(-result, f"{name} in task {self.id}: {os.strerror(-result)}")
        return result

    def _await_stop(self, timeout: float) -> None:
        stop = self._skip_signals(timeout)
        if stop != (_SYSCALL_STOP, 0):
            raise Strayed(f"task {self.id} met signal {stop.signal}, event {stop.event} instead of a system call")

    def _skip_signals(self, timeout: float) -> Stop:
        """All signals are blocked but SIGSTOP, which waits until the task goes on."""
        while True:
            stop = self.wait(timeout)
            if stop.signal == signal.SIGSTOP and not stop.event:
                self._signals.append(signal.SIGSTOP)
            elif stop.event != EVENT_STOP:
                return stop
            self.resume(to_syscall=True)

    def restore(self, timeout: float = TIMEOUT) -> None:
        """Undo what `begin` did; it is stopped then, and goes on with `detach` or `resume` as if nothing had been.

        It is stopped once more on the way: only there does the kernel decide again whether a system call that was
        interrupted is restarted or told of a signal.
        """
        if self._saved is None:
            return
        self.registers = self._saved
        self.signal_mask = self._mask
        self._saved = None
        self.interrupt()
        self.resume()
        self.halt(self.wait(timeout), timeout)

    def release(self, timeout: float = TIMEOUT) -> None:
        """`restore`, then let it go."""
        self.restore(timeout)
        self.detach()
        for number in self._signals:
            os.kill(self.id, number)
        self._signals.clear()

    def write(self, address: int, data: bytes) -> None:
        """Into its memory, where it may write itself.

        Raises:
            OSError: it has nothing there, or may not write there.
        """
        buffer = ctypes.create_string_buffer(data, len(data))
        ours = _Vector(ctypes.addressof(buffer), len(data))
        theirs = _Vector(address, len(data))
        written = _libc.process_vm_writev(self.id, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if written != len(data):
            number = ctypes.get_errno() if written < 0 else errno.EFAULT
            raise OSError(number, f"memory of {self.id}: {os.strerror(number)}")


def find_instruction(task: int) -> int:
    """Where a task can be sent to make a system call: a place in the code that the kernel gives to every process.

    Nobody can make other memory look like that to the kernel, and no other process can change it.

    Raises:
        Strayed: it has thrown that code away, or written something else there.
        OSError: it is gone.
    """
    with open(f"/proc/{task}/maps", "rb") as file:
        for line in file:
            # A file may be called like that, and be changed by others meanwhile. It has an inode.
            place, *facts = line.split(None, 5)
            if facts == _KERNEL_CODE:
                first, _, last = place.partition(b"-")
                start, end = int(first, 16), int(last, 16)
                break
        else:
            raise Strayed(f"task {task} has nothing of the kernel's code")
    memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = os.pread(memory, end - start, start).find(_INSTRUCTION)
    finally:
        os.close(memory)
    if at < 0:
        raise Strayed(f"task {task} has changed the kernel's code")
    return start + at


def threads(process: int) -> list[int]:
    """Those of a process that live; none if it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []
