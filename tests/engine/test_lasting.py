"""Lasting state behind the real wall: its limits hold for checkpoints too."""

from __future__ import annotations

import os
import time

import pytest

from atoll.errors import DiskFull
from atoll.sync import Sandbox

STATE = "x = y = [1]\ndef f(): return x\nclass C:\n    def m(self): return f()\nc = C()"


def test_stop_and_resume_bring_back_the_state_and_show_nothing_of_how():
    with Sandbox.create() as box:
        box.run_code(STATE)
        assert box.stop().lost == {}
        box.resume()
        assert box.run_code("y.append(2); c.m(), x is y").text == "([1, 2], True)"
        seen = box.run_code("import sys; [name for name in sys.modules if 'cloudpickle' in name or 'atoll' in name]")
        assert seen.text == "[]"
        assert box.files.info("/home/user/.atoll/state").mode & 0o777 == 0o700


def test_also_in_an_image(tmp_path):
    for name in ("usr", "bin"):
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    with Sandbox.create(image=tmp_path) as box:
        box.run_code(STATE)
        assert box.stop().lost == {}
        box.resume()
        assert box.run_code("y.append(2); c.m(), x is y").text == "([1, 2], True)"


def test_a_value_that_eats_memory_while_it_is_kept_costs_only_itself():
    greedy = "class Greedy:\n    def __reduce__(self): return (bytes, (bytes([1]) * (600 << 20),))\n"
    with Sandbox.create(resources={"memory": "256M"}) as box:
        box.run_code(greedy + "greedy = Greedy()\nx = 1")
        report = box.checkpoint()
        assert list(report.lost) == ["main/greedy"]
        assert box.run_code("x").text == "1"
        box.stop()
        box.resume()
        assert box.run_code("x").text == "1"


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, for a disk limit that the kernel holds")
def test_what_does_not_fit_on_the_disk_is_named_and_the_rest_is_kept():
    with Sandbox.create(resources={"disk": "32M", "memory": "1G"}) as box:
        box.run_code("import os\nlarge = os.urandom(64 << 20)\nx = 1")
        with pytest.raises(DiskFull, match="What was kept before is still there"):
            box.checkpoint()
        report = box.stop()
        assert list(report.lost) == ["main/large"]
        assert "no room" in report.lost["main/large"]
        box.resume()
        assert box.run_code("x").text == "1"


def test_a_large_state_comes_back_in_little_time():
    with Sandbox.create(resources={"memory": "1G"}) as box:
        box.run_code("import os\nparts = [os.urandom(1 << 20) for _ in range(64)]\nnumbers = list(range(10 ** 6))")
        began = time.monotonic()
        assert box.stop().lost == {}
        box.resume()
        assert box.run_code("len(parts), len(numbers)").text == "(64, 1000000)"
        assert time.monotonic() - began < 60
