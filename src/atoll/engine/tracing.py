"""Stopping other tasks and having them make system calls, by ptrace.

A task is seized, interrupted and stopped without noticing: its registers, its signal mask and the system call that
it waits in are afterwards what they were. All calls for one task must come from one thread. Nothing that a stopped
task holds in its memory is believed: where it is made to go on is looked up in what the kernel says, and every stop
is checked to be the one that was meant.
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
_GETREGS, _SETREGS, _GETREGSET, _SETREGSET = 12, 13, 0x4204, 0x4205
_GETEVENTMSG, _GETSIGMASK, _SETSIGMASK, _GET_RSEQ = 0x4201, 0x420A, 0x420B, 0x420F
_GET_SYSCALL, _SYSCALL_ENTRY = 0x420E, 1
TRACE_FORK, TRACE_VFORK, TRACE_CLONE, EXIT_KILL = 2, 4, 8, 0x100000
_SYSCALLS_ARE_GOOD = 1
_XSTATE = 0x202
_MOST_XSTATE = 1 << 14
_WALL = 0x40000000
_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, EVENT_STOP = 1, 2, 3, 128
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_MASK_SIZE = 8
_EVERYTHING = (1 << 64) - 1
_INSTRUCTION = b"\x0f\x05"
# What the kernel says of its own code in a process: flags, offset, device, inode and name.
_KERNEL_CODE = [b"r-xp", b"00000000", b"00:00", b"0", b"[vdso]\n"]
_PAUSE = 0.005
_STOPS = (signal.SIGCHLD,)
_NO_CALL = (1 << 64) - 1

# The numbers of x86-64: no other machine is known here.
CALLS = {
    "write": 1, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "getpid": 39, "clone": 56, "fork": 57, "kill": 62,
    "fcntl": 72, "chdir": 80, "umask": 95, "setsid": 112, "setgroups": 116, "setresuid": 117,
    "setresgid": 119, "capset": 126, "prctl": 157, "dup3": 292, "setns": 308, "seccomp": 317, "rseq": 334,
    "pidfd_open": 434, "close_range": 436, "openat2": 437, "pidfd_getfd": 438, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)
_raw = _libc.ptrace
_raw.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_raw.restype = ctypes.c_long


class TaskEnded(ProcessLookupError):
    """The task is gone, or was killed while it was stopped."""


class NotStopped(TimeoutError):
    """The task did not stop in time. It will when it can, and goes on once `settle` has seen it."""


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

    r10: int
    r12: int
    r13: int
    rax: int
    rdi: int
    rsp: int
    rip: int
    orig_rax: int
    fs_base: int

    def copy(self) -> Registers:
        return Registers.from_buffer_copy(self)


class Stop(NamedTuple):
    signal: int
    event: int


class RestartableSequence(NamedTuple):
    """What a thread has registered for restartable sequences; `pointer` is 0 without."""

    pointer: int
    size: int
    signature: int


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


def settle() -> None:
    """Let those go on that have stopped later than anybody waited. Who got `NotStopped` calls this now and then."""
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

    def __init__(self, task: int, options: int = 0) -> None:
        self.id = task
        self._saved: Registers | None = None
        self._mask = 0
        self._instruction = 0
        self._signals: list[int] = []
        self.first: Stop | None = None
        _ptrace(_SEIZE, task, 0, options | _SYSCALLS_ARE_GOOD)

    @classmethod
    def adopted(cls, task: int, instruction: int = 0) -> Task:
        """One that is traced already because it was cloned by a traced one."""
        self = cls.__new__(cls)
        self.id, self._saved, self._mask, self._instruction = task, None, 0, instruction
        self._signals, self.first = [], None
        return self

    @property
    def instruction(self) -> int:
        """Where it is sent to make a system call."""
        return self._instruction

    def send_to(self, instruction: int) -> None:
        """Say anew where it makes system calls: its memory may have been changed by others."""
        self._instruction = instruction

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

    def catch(self, timeout: float = TIMEOUT) -> None:
        """Stop it wherever it is, after `wait` has waited in vain."""
        _behind.discard(self.id)
        self.interrupt()
        self.halt(self.wait(timeout), timeout)

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
    def extended_state(self) -> bytes:
        """Floating point and vector registers."""
        buffer = ctypes.create_string_buffer(_MOST_XSTATE)
        vector = _Vector(ctypes.addressof(buffer), _MOST_XSTATE)
        _ptrace(_GETREGSET, self.id, _XSTATE, ctypes.addressof(vector))
        return buffer.raw[: vector.length]

    @extended_state.setter
    def extended_state(self, wanted: bytes) -> None:
        buffer = ctypes.create_string_buffer(wanted, len(wanted))
        vector = _Vector(ctypes.addressof(buffer), len(wanted))
        _ptrace(_SETREGSET, self.id, _XSTATE, ctypes.addressof(vector))

    @property
    def signal_mask(self) -> int:
        found = ctypes.c_uint64()
        _ptrace(_GETSIGMASK, self.id, _MASK_SIZE, ctypes.addressof(found))
        return found.value

    @signal_mask.setter
    def signal_mask(self, wanted: int) -> None:
        value = ctypes.c_uint64(wanted)
        _ptrace(_SETSIGMASK, self.id, _MASK_SIZE, ctypes.addressof(value))

    @property
    def restartable_sequence(self) -> RestartableSequence:
        words = (ctypes.c_uint32 * 6)()
        try:
            _ptrace(_GET_RSEQ, self.id, ctypes.sizeof(words), ctypes.addressof(words))
        except TaskEnded:
            raise
        except OSError:
            return RestartableSequence(0, 0, 0)  # a kernel before 5.13, or without
        return RestartableSequence(words[0] | words[1] << 32, words[2], words[3])

    def enters(self) -> int | None:
        """The number of the system call that it is about to make, if it is stopped at the beginning of one."""
        words = (ctypes.c_uint64 * 12)()
        _ptrace(_GET_SYSCALL, self.id, ctypes.sizeof(words), ctypes.addressof(words))
        return int(words[3]) if words[0] & 0xFF == _SYSCALL_ENTRY else None

    @property
    def message(self) -> int:
        """What an event stop tells; after a clone the id of the new task."""
        found = ctypes.c_ulong()
        _ptrace(_GETEVENTMSG, self.id, 0, ctypes.addressof(found))
        return found.value

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

    def clone(self, flags: int, child_thread_id: int = 0, timeout: float = TIMEOUT) -> int:
        """Have it clone itself, after `begin`; it was seized with TRACE_CLONE and TRACE_FORK.

        Gives the id of the new task, which is traced too and stops before its first instruction. Raises as `call`.
        """
        self._enter("clone", (flags, 0, 0, child_thread_id, 0), timeout)
        self.resume(to_syscall=True)
        stop = self._skip_signals(timeout)
        if stop.event not in (_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE):
            self._check(stop)
            return self._result("clone")
        made = self.message
        self.resume(to_syscall=True)
        self._await_stop(timeout)
        return made

    def prepared(self) -> Registers:
        """Its registers after `begin`, to be sent somewhere else: no system call is restarted with them."""
        if self._saved is None:
            raise ValueError("call begin first")
        wanted = self._saved.copy()
        wanted.orig_rax = _NO_CALL
        return wanted

    def _enter(self, name: str, arguments: tuple[int, ...], timeout: float) -> None:
        wanted = self.prepared()
        wanted.rip, wanted.rax = self._instruction, CALLS[name]
        for register, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments, strict=False):
            setattr(wanted, register, value & _EVERYTHING)
        self.registers = wanted
        self.resume(to_syscall=True)
        self._await_stop(timeout)

    def _result(self, name: str) -> int:
        found = self.registers
        if found.rip != self._instruction + len(_INSTRUCTION):
            raise Strayed(f"task {self.id} is not where it was sent")
        result = ctypes.c_long(found.rax).value
        if -4096 < result < 0:
            raise OSError(-result, f"{name} in task {self.id}: {os.strerror(-result)}")
        return result

    def _await_stop(self, timeout: float) -> None:
        self._check(self._skip_signals(timeout))

    def _check(self, stop: Stop) -> None:
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

    def read(self, address: int, size: int) -> bytes:
        """From its memory.

        Raises:
            OSError: it has nothing there, or may not read it itself.
        """
        buffer = ctypes.create_string_buffer(size)
        ours, theirs = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
        found = _libc.process_vm_readv(self.id, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if found != size:
            number = ctypes.get_errno() if found < 0 else errno.EFAULT
            raise OSError(number, f"memory of {self.id}: {os.strerror(number)}")
        return buffer.raw

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
