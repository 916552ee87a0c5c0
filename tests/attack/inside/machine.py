"""What attackers are made of, sent inside with them: raw system calls, and machine code for x86-64.

It runs on whatever Python the sandbox has, alone: only the standard library may be imported here.
"""

import ctypes
import mmap
import os
import signal
import struct
import threading

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p

# Numbers of x86-64.
WRITE, CLONE, EXIT, PRCTL, SECCOMP = 1, 56, 60, 157, 317
PWRITE, NANOSLEEP, OPEN, EXIT_GROUP, PAUSE, PTRACE = 18, 35, 2, 231, 34, 101
SET_NAME, NO_NEW_PRIVS = 15, 38
VM, FS, FILES, SIGHAND, VFORK, THREAD, SYSVSEM, UNTRACED = (
    0x100, 0x200, 0x400, 0x800, 0x4000, 0x10000, 0x40000, 0x800000,
)  # fmt: skip
THREAD_FLAGS = VM | FS | FILES | SIGHAND | THREAD | SYSVSEM

_REGISTERS = (b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8", b"\x49\xb9")
_ZERO, _NEGATIVE, _NOT_ZERO = b"\x0f\x84", b"\x0f\x88", b"\x0f\x85"


def call(number, *arguments):
    """The kernel's answer, or minus the number of the error."""
    answer = libc.syscall(ctypes.c_long(number), *[a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments])
    return answer if answer >= 0 else -ctypes.get_errno()


def places(name):
    """Where something is mapped in this process, as pairs of addresses."""
    with open("/proc/self/maps") as file:
        lines = [line.split()[0] for line in file if name in line]
    return [tuple(int(part, 16) for part in line.split("-")) for line in lines]


class Code:
    """Machine code that uses no stack, so that tasks that share memory can run it side by side."""

    def __init__(self, near=0):
        hint = (near - (1 << 24)) & ~4095 if near else 0
        self.address = libc.mmap(
            ctypes.c_void_p(hint), ctypes.c_size_t(4096), 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0)
        )
        self._data = 2048
        self._code = b""
        self._labels = {}
        self._jumps = []

    def data(self, some):
        """Put bytes beside the code; their address."""
        where = self.address + self._data
        ctypes.memmove(where, some, len(some))
        self._data += len(some) + -len(some) % 16
        return where

    def label(self, name):
        self._labels[name] = len(self._code)

    def system(self, number, *arguments):
        for register, value in zip(_REGISTERS, arguments):  # noqa: B905  # Python 3.8 has no strict
            self._code += register + struct.pack("<Q", value & (1 << 64) - 1)
        self._code += b"\x48\xb8" + struct.pack("<Q", number) + b"\x0f\x05"

    def jump(self, label):
        self._leap(b"\xe9", label)

    def jump_if_zero(self, label):
        self._code += b"\x48\x85\xc0"
        self._leap(_ZERO, label)

    def jump_if_error(self, label):
        self._code += b"\x48\x85\xc0"
        self._leap(_NEGATIVE, label)

    def jump_if_odd(self, counter, label):
        """Add one to a counter in memory first."""
        self._code += b"\x48\xb8" + struct.pack("<Q", counter) + b"\x48\xff\x00\x48\x8b\x00\x48\xa9\x01\x00\x00\x00"
        self._leap(_NOT_ZERO, label)

    def back(self):
        self._code += b"\xc3"

    def _leap(self, how, label):
        self._code += how + b"\0\0\0\0"
        self._jumps.append((len(self._code), label))

    def finish(self):
        """Put it in place; a function that runs it, without holding Python's lock."""
        whole = bytearray(self._code)
        for end, label in self._jumps:
            whole[end - 4 : end] = struct.pack("<i", self._labels[label] - end)
        ctypes.memmove(self.address, bytes(whole), len(whole))
        return ctypes.CFUNCTYPE(ctypes.c_long)(self.address)


def name_task(name):
    """By this name the judge outside knows who is an attacker's; children and threads inherit it, exec drops it."""
    libc.prctl(SET_NAME, name.encode()[:15] + b"\0", 0, 0, 0)


def in_thread(function, *arguments):
    """Run it in a thread that no signal disturbs."""

    def body():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        function(*arguments)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def in_process(function, *arguments):
    """Run it in a child, which ends with it; its pid, or 0 where no more may be started."""
    try:
        pid = os.fork()
    except OSError:
        return 0
    if pid:
        return pid
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        function(*arguments)
    except BaseException:  # noqa: BLE001  # an attacker has nobody to tell
        pass
    os._exit(0)
