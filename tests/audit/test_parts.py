"""The parts that listen to the kernel, one by one."""

from __future__ import annotations

import os
import struct

import pytest

from atoll.engine.denials import calls, log, program
from atoll.engine.denials.btf import PATH, Types
from atoll.types import Denial


def denial(number):
    return Denial(float(number), f"a/{number}\udcff\n", "read", "kernel", "cat (7)")


def test_a_log_gives_back_what_was_written(tmp_path):
    assert log.read(str(tmp_path)) == ([], 0)
    writer = log.Log(str(tmp_path))
    writer.add([denial(1), denial(2)], 0)
    writer.add([], 5)
    writer.add([denial(3)], 2)
    assert log.read(str(tmp_path)) == ([denial(1), denial(2), denial(3)], 7)


def test_a_log_goes_on_where_another_ended(tmp_path):
    log.Log(str(tmp_path)).add([denial(1)], 4)
    log.Log(str(tmp_path)).add([denial(2)], 1)
    assert log.read(str(tmp_path)) == ([denial(1), denial(2)], 5)


def test_a_log_has_a_bound_and_counts_the_rest(tmp_path):
    writer = log.Log(str(tmp_path))
    for start in range(0, 50_000, 500):
        writer.add([denial(start + each) for each in range(500)], 0)
    found, dropped = log.read(str(tmp_path))
    assert (len(found), dropped) == (log.MOST, 40_000)
    assert (found[0], found[-1]) == (denial(40_000), denial(49_999))
    long = Denial(0.0, "x" * 4000, "read", "kernel", None)
    for _ in range(40):
        writer.add([long] * 100, 0)
    assert sum(os.path.getsize(tmp_path / name) for name in os.listdir(tmp_path)) < 10 << 20
    found, dropped = log.read(str(tmp_path))
    assert len(found) + dropped == 54_000


def test_a_line_that_a_killed_writer_left_is_passed_over(tmp_path):
    log.Log(str(tmp_path)).add([denial(1)], 0)
    with open(tmp_path / "denials", "a") as file:
        file.write('[2, 3.0, "a')
    assert log.read(str(tmp_path)) == ([denial(1)], 0)
    log.Log(str(tmp_path)).add([denial(2)], 0)
    assert log.read(str(tmp_path))[0][-1] == denial(2)


def record(*, call=257, second=False, name=b"f\0", base=b"inner\0outer\0", base_length=None):
    head = struct.pack(
        "<QIIii16siiIiIiQQQQ", 5, 8, 7, call, -13, b"cat\0rest", len(name), 4 if second else 0, 30,
        len(base) if base_length is None else base_length, 31, 0, 1, 2, 3, 4,
    )  # fmt: skip
    first = name.ljust(program.NAME, b"?") + base.ljust(program.BASE, b"?")
    return head + first + (b"two\0".ljust(program.NAME + program.BASE, b"?") if second else b"")


def test_a_record_is_taken_apart():
    found = program.parse(record())
    assert found == program.Record(5, 7, 257, 13, b"cat", (1, 2, 3, 4), (b"f",), ((30, [b"outer", b"inner"]),))
    two = program.parse(record(second=True))
    assert (two.names, two.bases) == ((b"f", b"two"), ((30, [b"outer", b"inner"]), (31, [])))


def test_what_could_not_be_read_is_none():
    found = program.parse(record(base_length=-1))
    assert found.bases == (None,)


def test_what_an_open_is_for_is_in_its_flags():
    assert calls.operation(257, (0, 0, os.O_RDONLY, 0)) == "read"
    assert calls.operation(257, (0, 0, os.O_RDONLY | os.O_DIRECTORY, 0)) == "list"
    assert calls.operation(257, (0, 0, os.O_RDWR, 0)) == "write"
    assert calls.operation(2, (0, os.O_WRONLY | os.O_CREAT, 0, 0)) == "write"
    assert calls.operation(437, (0, 0, 0, 0)) == "open"
    assert calls.operation(316, (0, 0, 0, 0)) == "move"


@pytest.mark.skipif(not os.path.exists(PATH), reason="this kernel does not tell of its types")
def test_the_kernel_tells_where_its_members_are():
    types = Types()
    assert types.offset("path", "mnt") == 0
    assert types.offset("path", "dentry") == 8
    assert types.offset("qstr", "name") == 8, "behind a nameless union"
    for structure, member in program.MEMBERS:
        assert types.offset(structure, member) >= 0
    with pytest.raises(ValueError, match="task_struct has no such_a_thing"):
        types.offset("task_struct", "such_a_thing")
    with pytest.raises(ValueError, match="no_such_structure"):
        types.offset("no_such_structure", "mnt")


def test_types_that_are_none_are_refused(tmp_path):
    (tmp_path / "types").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="has no types"):
        Types(str(tmp_path / "types"))
