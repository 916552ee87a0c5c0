"""Many processes, and what they do to each other and to whoever wants to stop them."""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import time

from tests.attack.inside import machine
from tests.attack.inside.machine import call, in_process, in_thread
from tests.attack.inside.plain import Clock

_ALLOW, _ERRNO, _TRAP, _TRACE, _NOTIFY, _KILL_THREAD = 0x7FFF0000, 0x50001, 0x30000, 0x7FF00000, 0x7FC00000, 0
# chdir, fchdir, mmap, munmap, openat, close, getpid: what a stopped task may be made to call.
_CALLS = (80, 81, 9, 11, 257, 3, 39)


def crowd(chance, options):
    """Processes that sleep, each somewhere else."""

    def body():
        for number in range(options["pids"] * 3 // 4):
            in_process(_stay, number, options["seconds"])
        time.sleep(options["seconds"])

    in_process(body)


def _stay(number, seconds):
    with contextlib.suppress(OSError):
        os.makedirs(f"crowd/{number}", exist_ok=True)
        os.chdir(f"crowd/{number}")
    time.sleep(seconds)


def bomb(chance, options):
    """Every process starts two, until no more may be; then all end, and it begins again."""

    def body():
        clock = Clock(options["seconds"])
        while clock.is_on():
            in_process(_double, 10)
            time.sleep(1)

    in_process(body)


def _double(depth):
    if depth:
        in_process(_double, depth - 1)
        in_process(_double, depth - 1)
    time.sleep(0.5)


def stop_each_other(chance, options):
    """Signals that stop and continue, to whoever may be sent one: its like, contexts, the guest."""

    def body():
        clock = Clock(options["seconds"])
        mine = [in_process(time.sleep, options["seconds"]) for _ in range(8)]
        while clock.is_on():
            anybody = [int(name) for name in os.listdir("/proc") if name.isdigit()] or mine
            for pid in (chance.choice(mine), chance.choice(anybody)):
                with contextlib.suppress(OSError):
                    os.kill(pid, chance.choice([signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP, signal.SIGCONT]))
            time.sleep(0.002)
        for pid in mine:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    in_process(body)


def trace_each_other(chance, options):
    """Be the tracer before somebody else is: attach, seize, traceme. All are refused."""

    def body():
        clock = Clock(options["seconds"])
        while clock.is_on():
            child = in_process(call, machine.PTRACE, 0, 0, 0, 0)
            for pid in (child, os.getppid(), 1):
                call(machine.PTRACE, 16, pid, 0, 0)
                call(machine.PTRACE, 0x4206, pid, 0, 0)
            call(310, os.getppid(), 0, 0, 0, 0, 0)
            time.sleep(0.01)

    in_process(body)


def _operation(code, value, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, value)


def _filter(numbers, answer, flags=0):
    """Have the kernel answer these calls in its own way from now on; what it said."""
    code = [_operation(0x20, 0)]
    for index, number in enumerate(numbers):
        code.append(_operation(0x15, number, len(numbers) - index, 0))
    code += [_operation(6, _ALLOW), _operation(6, answer)]
    held = ctypes.create_string_buffer(b"".join(code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(held))
    machine.libc.prctl(machine.NO_NEW_PRIVS, 1, 0, 0, 0)
    return call(machine.SECCOMP, 1, flags, program)


def filter_calls(chance, options):
    """Processes and threads whose own filter answers what they may be made to call while they are stopped."""

    def body():
        count = chance.randint(1, 3)
        _filter(chance.sample(_CALLS[:4] if chance.random() < 0.5 else _CALLS, count), chance.choice(
            [_ERRNO, _TRAP, _TRACE, _KILL_THREAD]))  # fmt: skip
        time.sleep(options["seconds"])

    for _ in range(chance.randint(1, 12)):
        in_process(body)
    in_thread(body)


def ask_a_supervisor(chance, options):
    """Filters that send a call to a process that never answers. Where that is refused, nothing happens."""

    def body():
        if _filter((80, 81, 11), _NOTIFY, 8) >= 0:
            in_thread(os.chdir, "/")
        time.sleep(options["seconds"])

    for _ in range(chance.randint(4, 16)):
        in_process(body)


def fill_pipes(chance, options):
    """Pipes and sockets full of bytes and of descriptors, and writers that wait for ever."""

    def body():
        kept = []
        with contextlib.suppress(OSError):
            for _ in range(200):
                pair = os.pipe()
                kept.append(pair)
                os.set_blocking(pair[1], False)
                os.write(pair[1], bytes(65536))
        with contextlib.suppress(OSError):
            for _ in range(50):
                ours, theirs = socket.socketpair()
                kept.append((ours, theirs))
                ours.setblocking(False)
                socket.send_fds(ours, [b"x"], [theirs.fileno()])
        for pair in kept[:4]:
            if isinstance(pair[1], int):
                os.set_blocking(pair[1], True)
                in_thread(os.write, pair[1], bytes(1 << 20))
        time.sleep(options["seconds"])

    for _ in range(chance.randint(1, 4)):
        in_process(body)


def say_nonsense(chance, options):
    """Write to each descriptor that this process was given: some lead to the guest."""

    def body():
        time.sleep(0.2)
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                os.set_blocking(fd, False)
                os.write(fd, chance.randbytes(chance.choice([1, 8, 4096])))

    in_thread(body)
