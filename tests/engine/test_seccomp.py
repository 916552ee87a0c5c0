"""The filter, run by a small interpreter of its own: what it says for every call, on every machine."""

from __future__ import annotations

import errno
import struct

import pytest

from atoll.engine import seccomp

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW = 0x7FFF0000
ABSENT = {"x86_64": {206, 207, 208, 209, 210, 333}, "aarch64": {0, 1, 2, 3, 4, 292}}


def verdict(machine: str, number: int, args: tuple[int, ...] = (), arch: int | None = None, code: bytes = b"") -> int:
    data = struct.pack("<IIQ", number, ARCH[machine] if arch is None else arch, 0)
    data += struct.pack("<6Q", *(args + (0,) * 6)[:6])
    steps = list(struct.iter_unpack("<HBBI", code or seccomp.program(machine)))
    position, loaded = 0, 0
    while True:
        op, yes, no, value = steps[position]
        position += 1
        if op == 0x20:
            loaded = struct.unpack_from("<I", data, value)[0]
        elif op == 0x05:
            position += value
        elif op == 0x06:
            return value
        else:
            hit = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[op]
            position += yes if hit else no


def refused(machine: str, number: int, args: tuple[int, ...] = (), code: bytes = b"") -> int:
    answer = verdict(machine, number, args, code=code)
    return answer & 0xFFFF if answer & 0x50000 == 0x50000 else 0


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_denied_call_is_refused_and_every_other_plain_call_is_not(machine):
    denied = set(seccomp.denied(machine))
    assert len(denied) > 50
    special = {"x86_64": {435, 56, 16, 41, 53}, "aarch64": {435, 220, 29, 198, 199}}[machine] | ABSENT[machine]
    for number in range(600):
        if number in special:
            continue
        assert refused(machine, number) == (errno.EPERM if number in denied else 0), number


def test_the_calls_that_have_broken_sandboxes_are_denied():
    x86 = {"ptrace": 101, "mount": 165, "unshare": 272, "setns": 308, "bpf": 321, "io_uring_setup": 425, "keyctl": 250}
    assert set(x86.values()) <= set(seccomp.denied("x86_64"))


def test_clone_is_allowed_without_namespaces_and_refused_with_each():
    assert refused("x86_64", 56, (0x01200011,)) == 0
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert refused("x86_64", 56, (flag | 17,)) == errno.EPERM


def test_clone3_looks_absent_so_that_libc_falls_back():
    assert refused("x86_64", 435) == errno.ENOSYS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_pools_of_the_whole_host_look_absent(machine):
    assert {refused(machine, number) for number in ABSENT[machine]} == {errno.ENOSYS}


def test_segments_that_no_poll_sees_look_absent_where_memory_is_polled():
    polled = seccomp.program("x86_64", shared_memory=False)
    assert refused("x86_64", 29, code=polled) == errno.ENOSYS
    assert refused("x86_64", 29) == 0


def test_characters_cannot_be_pushed_into_a_terminal_but_it_can_be_resized():
    assert refused("x86_64", 16, (0, 0x5412)) == errno.EPERM
    assert refused("x86_64", 16, (0, 0x5412 | 1 << 40)) == errno.EPERM
    assert refused("x86_64", 16, (0, 0x5414)) == 0


def test_only_families_with_a_use_can_be_opened():
    assert [refused("x86_64", 41, (family,)) for family in (1, 2, 10)] == [0, 0, 0]
    assert [refused("x86_64", 41, (family,)) for family in (17, 38, 40, 44)] == [errno.EAFNOSUPPORT] * 4


def test_only_protocols_that_everybody_uses_can_be_opened():
    for family in (2, 10):
        assert [refused("x86_64", 41, (family, 1, protocol)) for protocol in (0, 1, 6, 17, 58)] == [0] * 5
        odd = [refused("x86_64", 41, (family, 1, protocol)) for protocol in (33, 115, 132, 136, 262)]
        assert odd == [errno.EPROTONOSUPPORT] * 5
    assert [refused("x86_64", 41, (16, 3, protocol)) for protocol in (0, 15)] == [0, errno.EPROTONOSUPPORT]
    assert refused("x86_64", 41, (1, 1, 99)) == 0


def test_calls_of_another_architecture_kill_and_x32_looks_absent():
    assert verdict("x86_64", 1, arch=0x40000003) == 0x80000000
    assert verdict("x86_64", 1) == ALLOW
    assert refused("x86_64", 0x40000000 | 1) == errno.ENOSYS


def test_a_machine_without_a_table_is_an_error():
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64")
