"""The filter as a program, run by an interpreter of our own: for other machines, and for calls we cannot make."""

import errno
import struct

import pytest

from atoll.engine import seccomp

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
MACHINES = sorted(ARCH)
NUMBERS = {
    "x86_64": {"read": 0, "write": 1, "clone": 56, "fork": 57, "ioctl": 16, "socket": 41, "socketpair": 53,
               "mount": 165, "unshare": 272, "execve": 59, "openat": 257, "ptrace": 101, "setsockopt": 54},
    "aarch64": {"read": 63, "write": 64, "clone": 220, "ioctl": 29, "socket": 198, "socketpair": 199, "mount": 40,
                "unshare": 97, "execve": 221, "openat": 56, "ptrace": 117, "setsockopt": 208},
}  # fmt: skip


def judge(machine, call, *arguments, arch=None):
    """What the filter says of a call: "allow", "kill", or the name of an errno."""
    number = NUMBERS[machine][call] if isinstance(call, str) else call
    data = struct.pack("<iIQ6Q", number, arch or ARCH[machine], 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    verdict = _run(seccomp.program(machine), data)
    if verdict == ALLOW:
        return "allow"
    if verdict == KILL:
        return "kill"
    assert verdict & 0xFFFF0000 == ERRNO
    return errno.errorcode[verdict & 0xFFFF] if verdict & 0xFFFF else "as if done"


def _run(program, data):
    """Classic BPF, as far as the filter uses it."""
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        op, yes, no, value = code[at]
        at += 1
        if op == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif op == 0x06:
            return value
        elif op == 0x05:
            at += value
        else:
            held = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}[op]
            at += yes if held else no


@pytest.mark.parametrize("machine", MACHINES)
def test_ordinary_calls_are_allowed(machine):
    for call in ("read", "write", "execve", "openat"):
        assert judge(machine, call) == "allow"


@pytest.mark.parametrize("machine", MACHINES)
def test_no_socket_lingers(machine):
    """The level and the option are 32 bits, whatever is above them."""
    for level in (1, 1 | 1 << 32):
        assert judge(machine, "setsockopt", 3, level, 13) == "as if done"
    for level, option in ((1, 9), (6, 13), (0, 13), (1, 12), (1, 14)):
        assert judge(machine, "setsockopt", 3, level, option) == "allow"


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call_is_refused_and_its_neighbours_are_not(machine):
    denied = seccomp.denied(machine)
    special = {NUMBERS[machine][name] for name in ("clone", "ioctl", "socket", "socketpair")} | {435}
    for number in denied:
        assert judge(machine, number) == "EPERM"
    for number in {n + step for n in denied for step in (-1, 1)} - set(denied) - special:
        assert judge(machine, number) == "allow", number


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_of_another_architecture_kills(machine):
    for arch in (I386, *(ARCH[other] for other in MACHINES if other != machine)):
        assert judge(machine, "read", arch=arch) == "kill"


def test_x32_calls_do_not_exist():
    for number in (0, 39, 101, 520):
        assert judge("x86_64", 0x40000000 | number) == "ENOSYS"


@pytest.mark.parametrize("machine", MACHINES)
def test_clone_makes_processes_and_threads_but_no_namespace(machine):
    thread = 0x3D0F00
    assert judge(machine, "clone", 17) == "allow"
    assert judge(machine, "clone", thread) == "allow"
    for shift in (17, 25, 26, 27, 28, 29, 30):
        assert judge(machine, "clone", thread | 1 << shift) == "EPERM"
    # The kernel looks at the lower half only, and so must the filter.
    assert judge(machine, "clone", 1 << 40 | 17) == "allow"
    assert judge(machine, 435) == "ENOSYS"


@pytest.mark.parametrize("machine", MACHINES)
def test_terminals_are_resized_but_nothing_is_typed_into_them(machine):
    assert judge(machine, "ioctl", 0, 0x5413) == "allow"
    for request in (0x5412, 0x541C, 0xFFFFFFFF00005412):
        assert judge(machine, "ioctl", 0, request) == "EPERM"


@pytest.mark.parametrize("machine", MACHINES)
def test_only_four_families_of_sockets_can_be_made(machine):
    allowed = {1, 2, 10, 16}
    for family in range(50):
        expected = "allow" if family in allowed else "EAFNOSUPPORT"
        assert judge(machine, "socket", family, 1, 0) == expected
        assert judge(machine, "socketpair", family) == ("allow" if family == 1 else "EAFNOSUPPORT")
    for protocol in range(1, 30):
        assert judge(machine, "socket", 16, 3, protocol) == "EPROTONOSUPPORT"


def test_a_machine_without_a_table_gets_no_filter_at_all():
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64")
