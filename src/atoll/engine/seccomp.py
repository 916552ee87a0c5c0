"""The system call filter: what no sandboxed program needs and what has broken sandboxes before.

`program` is pure: it gives the BPF bytes for a machine. `install` loads them, irrevocably.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from . import kernel

# Call numbers on x86-64 and on aarch64.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "set_mempolicy_home_node": (450, 450),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    "_sysctl": (156, None),
    "ustat": (136, None),
}
_CLONE3 = 435
# execve, execveat.
_PROGRAMS = ((59, 221), (322, 281))
# io_setup, io_destroy, io_submit, io_cancel, io_getevents, io_pgetevents; then shmget.
_ASYNCHRONOUS_IO = ((206, 0), (207, 1), (209, 2), (210, 3), (208, 4), (333, 292))
_SHMGET = (29, 194)
# A filter of one's own may answer calls by another process: then a call lasts as long as that one likes. What others
# have a process do from outside, as `holding` does, would wait for it.
_SECCOMP = (317, 277)
# Closing a socket that lingers waits, for as long as who made it likes, in whoever lets go of it last: that is who is
# sent it and does not want it, as our side is by hostile code.
_SETSOCKOPT = (54, 208)
_SOL_SOCKET, _SO_LINGER = 1, 13
_NEW_LISTENER = 1 << 3
# column of the table, architecture, clone, ioctl, socket, socketpair
_MACHINES = {"x86_64": (0, 0xC000003E, 56, 16, 41, 53), "aarch64": (1, 0xC00000B7, 220, 29, 198, 199)}

_NEW_NAMESPACES = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# Families a program has a use for; others (packet, vsock, alg, ...) are attack surface.
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
# Of netlink only the list of interfaces and routes: the kernel tells of the host's devices on another one.
_NETLINK_ROUTE = 0

# Of the internet protocols: the default, ICMP, TCP, UDP, ICMPv6. Others load kernel modules that few ever look at.
_INET_PROTOCOLS = (0, 1, 6, 17, 58)

_LD, _JUMP, _JEQ, _JGE, _JSET, _RET = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_MAX_JUMP = 255
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32
_X32_BIT = 0x40000000


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _op(_RET, _ERRNO | number)


def _when(number: int, then: list[bytes]) -> list[bytes]:
    """Run `then`, which must return, when the call has this number."""
    return [_op(_JEQ, number, 0, len(then)), *then]


def _search(numbers: list[int], found: bytes = b"", other: bytes = b"") -> list[bytes]:
    """Refuse these calls and allow all others, unless told otherwise. A search tree: the kernel runs the filter for
    every call number once when it is loaded, so its depth is what creating a sandbox pays."""
    if len(numbers) <= 2:
        code = []
        for index, number in enumerate(numbers):
            code.append(_op(_JEQ, number, len(numbers) - index, 0))
        return [*code, other or _op(_RET, _ALLOW), found or _refuse(errno.EPERM)]
    middle = len(numbers) // 2
    low, high = _search(numbers[:middle], found, other), _search(numbers[middle:], found, other)
    if len(low) <= _MAX_JUMP:
        return [_op(_JGE, numbers[middle], len(low), 0), *low, *high]
    return [_op(_JGE, numbers[middle], 0, 1), _op(_JUMP, len(low)), *low, *high]


def program(machine: str, *, shared_memory: bool = True, namespaces: int = 0) -> bytes:
    """The filter for a machine, as BPF instructions. `shared_memory` is that of System V.

    `namespaces` is for a nursery: it may clone with exactly these flags, and what it clones may go into a control
    group namespace of its own.

    Raises:
        OSError: there is no table for this machine, so no filter can be made.
    """
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"atoll has no system call table for {machine}")
    _, arch, clone, ioctl, socket, socketpair = _MACHINES[machine]
    code = [_op(_LD, _ARCH), _op(_JEQ, arch, 1, 0), _op(_RET, _KILL), _op(_LD, _NUMBER)]
    if machine == "x86_64":
        code += [_op(_JGE, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    # libc falls back to clone, whose flags can be seen.
    absent = [_CLONE3, *_absent(machine, shared_memory=shared_memory)]
    for number in absent:
        code += _when(number, [_refuse(errno.ENOSYS)])
    code += _when(clone, _clone(namespaces))
    if namespaces:
        new_group = [_op(_LD, _ARG0), _op(_JEQ, kernel.CLONE_NEWCGROUP, 1, 0), _refuse(errno.EPERM), _op(_RET, _ALLOW)]
        code += _when(_DENIED["unshare"][_MACHINES[machine][0]] or 0, new_group)
    code += _when(
        ioctl,
        [
            _op(_LD, _ARG1),
            _op(_JEQ, _TIOCSTI, 1, 0),
            _op(_JEQ, _TIOCLINUX, 0, 1),
            _refuse(errno.EPERM),
            _op(_RET, _ALLOW),
        ],
    )
    code += _when(
        socket,
        [
            _op(_LD, _ARG0),
            _op(_JEQ, _UNIX, 8 + len(_INET_PROTOCOLS), 0),
            _op(_JEQ, _INET, 5, 0),
            _op(_JEQ, _INET6, 4, 0),
            _op(_JEQ, _NETLINK, 1, 0),
            _refuse(errno.EAFNOSUPPORT),
            *[_op(_LD, _ARG2), _op(_JEQ, _NETLINK_ROUTE, 2 + len(_INET_PROTOCOLS), 1 + len(_INET_PROTOCOLS))],
            _op(_LD, _ARG2),
            *(_op(_JEQ, protocol, len(_INET_PROTOCOLS) - i, 0) for i, protocol in enumerate(_INET_PROTOCOLS)),
            _refuse(errno.EPROTONOSUPPORT),
            _op(_RET, _ALLOW),
        ],
    )
    listener = [_op(_LD, _ARG1), _op(_JSET, _NEW_LISTENER, 0, 1), _refuse(errno.EPERM), _op(_RET, _ALLOW)]
    code += _when(_SECCOMP[_MACHINES[machine][0]], listener)
    code += _when(
        _SETSOCKOPT[_MACHINES[machine][0]],
        [
            _op(_LD, _ARG1),
            _op(_JEQ, _SOL_SOCKET, 0, 3),
            _op(_LD, _ARG2),
            _op(_JEQ, _SO_LINGER, 0, 1),
            # As if it were done: what programs of good will lose by it is next to nothing.
            _refuse(0),
            _op(_RET, _ALLOW),
        ],
    )
    code += _when(socketpair, [_op(_LD, _ARG0), _op(_JEQ, _UNIX, 1, 0), _refuse(errno.EAFNOSUPPORT), _op(_RET, _ALLOW)])
    return b"".join(code + _search(denied(machine)))


def only(machine: str, allowed: list[int], guarded: dict[int, tuple[int, int]]) -> bytes:
    """A filter that allows these calls, sorted, and refuses all others; for a program whose calls are all known.

    `guarded` are allowed as well, unless one argument, by its number, has any of some bits.

    Raises:
        OSError: there is no table for this machine, so no filter can be made.
    """
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"atoll has no system call table for {machine}")
    _, arch, clone, *_ = _MACHINES[machine]
    code = [_op(_LD, _ARCH), _op(_JEQ, arch, 1, 0), _op(_RET, _KILL), _op(_LD, _NUMBER)]
    code += _when(_CLONE3, [_refuse(errno.ENOSYS)])
    code += _when(clone, _clone(0))
    for number, (argument, bits) in guarded.items():
        look = [_op(_LD, _ARG0 + 8 * argument), _op(_JSET, bits, 0, 1), _refuse(errno.EPERM), _op(_RET, _ALLOW)]
        code += _when(number, look)
    return b"".join(code + _search(allowed, found=_op(_RET, _ALLOW), other=_refuse(errno.EPERM)))


def _clone(namespaces: int) -> list[bytes]:
    plain = [_op(_LD, _ARG0), _op(_JSET, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM), _op(_RET, _ALLOW)]
    return [_op(_LD, _ARG0), _op(_JEQ, namespaces, 0, 1), _op(_RET, _ALLOW), *plain] if namespaces else plain


def _absent(machine: str, *, shared_memory: bool) -> list[int]:
    """Calls that look as if the kernel did not have them, so that programs do without.

    Asynchronous I/O takes from a pool of the whole host. Segments of System V stay when nobody is attached: where
    memory is limited by looking at processes nobody would see them.
    """
    column = _MACHINES[machine][0]
    calls = [*_ASYNCHRONOUS_IO] if shared_memory else [*_ASYNCHRONOUS_IO, _SHMGET]
    return [numbers[column] for numbers in calls]


def denied(machine: str) -> list[int]:
    """The numbers of the calls that are refused outright."""
    column = _MACHINES[machine][0]
    return sorted({number for numbers in _DENIED.values() if (number := numbers[column]) is not None})


def no_programs(machine: str) -> bytes:
    """A filter for a process of the host's that may start no program, nor do what a sandbox may not.

    Raises:
        OSError: there is no table for this machine, so no filter can be made.
    """
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"atoll has no system call table for {machine}")
    column, arch, *_ = _MACHINES[machine]
    code = [_op(_LD, _ARCH), _op(_JEQ, arch, 1, 0), _op(_RET, _KILL), _op(_LD, _NUMBER)]
    if machine == "x86_64":
        code += [_op(_JGE, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    return b"".join([*code, *_search(sorted({*denied(machine), *(numbers[column] for numbers in _PROGRAMS)}))])


def install(code: bytes) -> None:
    """Load a filter into this process and all its descendants. Needs no_new_privs.

    Raises:
        OSError: the kernel has no seccomp filters.
    """
    buffer = ctypes.create_string_buffer(code, len(code))
    packed = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    kernel.syscall("seccomp", 1, 0, packed)
