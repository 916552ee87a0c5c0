"""What is in the memory of code behind the wall: nothing of the job that only those outside need to know."""

import os
import time

import pytest

HIDDEN, SHOWN = "hushed-xname", "shown-xname"
RULES = [("**", "read"), (f"{HIDDEN}-*", "none"), (f"{HIDDEN}-*/**", "none")]


@pytest.fixture
def source(maker):
    """A directory with many names, of which some are hidden."""
    path = f"{maker.home}/memory-{time.monotonic_ns()}-{HIDDEN}"
    os.mkdir(path)
    for number in range(100):
        for name in (f"{HIDDEN}-{number}", f"{SHOWN}-{number}"):
            with open(f"{path}/{name}", "w") as file:
                file.write("x")
    for each in (path, *(f"{path}/{name}" for name in os.listdir(path))):
        os.chown(each, maker.uid, maker.uid)
    return path


def remembered():
    """How many names of either kind are in this process's memory, having listed the directory."""
    import re

    listed = os.listdir(".")
    # None of these patterns is a text that it finds.
    patterns = {"hidden": rb"hushed-[x]name", "shown": rb"shown-[x]name-\d"}
    found = dict.fromkeys(patterns, 0)
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            first, _, last = line.split()[0].partition("-")
            try:
                memory.seek(int(first, 16))
                data = memory.read(int(last, 16) - int(first, 16))
            except (OSError, ValueError, OverflowError):
                continue
            for kind, pattern in patterns.items():
                found[kind] += len(re.findall(pattern, data))
    return {**found, "listed": len(listed)}


@pytest.mark.parametrize(
    "wishes", [{}, {"workdir": "/work2"}, {"network": "host"}], ids=["usual", "workdir", "network"]
)
def test_names_that_are_hidden_are_not_in_memory(maker, source, wishes):
    with maker.create(source=source, permissions=RULES, **wishes) as box:
        for _ in ("made", "resumed"):
            found = box.try_cell(remembered)
            assert found["listed"] == 100
            assert found["shown"] >= 100, "the control: names that code has seen are found"
            assert found["hidden"] == 0
            box.call("stop")
            box.call("resume")


def test_the_next_sandbox_knows_nothing_of_the_last(maker, source):
    with maker.create(source=source, permissions=RULES, workdir="/work2", env={"SECRET": f"{HIDDEN}-secret"}):
        pass
    with maker.create(workdir="/work3") as box:
        assert box.try_cell(remembered)["hidden"] == 0
