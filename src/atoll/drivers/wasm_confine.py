"""A second wall around the process that runs an instance, should the first one, WebAssembly itself, have a hole.

Such a process reads and writes the files of its sandbox, waits, and talks on sockets that it was given. This is all
that it is left with: it opens nothing else, starts no program, makes no socket, and brings no new machine code.
"""

from __future__ import annotations

import errno
import functools
import os

from ..engine import kernel, landlock, seccomp
from .wasm_runtime import CRANELIFT

# Call numbers on x86-64 and on aarch64.
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "getsockname": (51, 204),
    "getsockopt": (55, 209),
    "exit": (60, 93),
    "wait4": (61, 260),
    "fcntl": (72, 25),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "ftruncate": (77, 46),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "openat": (257, 56),
    "mkdirat": (258, 34),
    "newfstatat": (262, 79),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "linkat": (265, 37),
    "symlinkat": (266, 36),
    "readlinkat": (267, 78),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "utimensat": (280, 88),
    "fallocate": (285, 47),
    "pipe2": (293, 59),
    "renameat2": (316, 276),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "openat2": (437, 437),
}
_COLUMN = {"x86_64": 0, "aarch64": 1}
# mmap and mprotect, whose third argument says whether memory can be run.
_MEMORY = ((9, 10), (222, 226))
_EXECUTABLE = 4


@functools.cache
def program(machine: str) -> bytes:
    """The filter for a machine: calls that are not on the list fail. Raises OSError where there is none."""
    if machine not in _COLUMN:
        raise OSError(errno.ENOSYS, f"atoll has no system call table for {machine}")
    column = _COLUMN[machine]
    numbers = sorted(number for pair in _ALLOWED.values() if (number := pair[column]) is not None)
    guarded = dict.fromkeys(_MEMORY[column], (2, _EXECUTABLE))
    return seccomp.only(machine, numbers, guarded)


def confine(writable: tuple[str, ...], readable: tuple[str, ...], code: bytes) -> None:
    """Close the wall around this process, for good. Raises OSError; it may be closed halfway then."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        kernel.drop_capabilities()
    abi = landlock.version()
    if abi:
        landlock.restrict(abi, writable, readable)
    seccomp.install(code)


def walls(compiler: str) -> list[str]:
    """The layers that stand around an instance on this host; the first is as good as who has compiled it."""
    abi = landlock.version()
    second = [f"Landlock v{abi}"] if abi else []
    first = "WebAssembly" if compiler == CRANELIFT else f"WebAssembly by {compiler.capitalize()}"
    return [first, "no_new_privs", *second, "seccomp"]
