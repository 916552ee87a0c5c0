"""Memory of processes is asked for by a child, so that who keeps the kernel from telling it keeps nobody waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from atoll.engine import process_memory, usage

MEGABYTE = 1 << 20


@pytest.fixture
def family():
    """A process and a child of it, of which each has touched so many megabytes of its own."""
    code = "import os, time; held = b'x' * (20 << 20); pid = os.fork(); own = b'y' * (10 << 20); print(1, flush=True); "
    process = subprocess.Popen([sys.executable, "-c", code + "time.sleep(600)"], stdout=subprocess.PIPE)
    for _ in range(2):
        process.stdout.readline()
    yield process.pid
    for pid in reversed(usage.descendants(process.pid)):
        os.kill(pid, 9)
    process.wait()
    process.stdout.close()


def measured(first):
    """The sizes, and the longest that a step took."""
    steps, longest = process_memory.of_each(first), 0.0
    while True:
        began = time.monotonic()
        try:
            next(steps)
        except StopIteration as end:
            return end.value, longest
        finally:
            longest = max(longest, time.monotonic() - began)


def test_what_is_shared_is_counted_once(family):
    found, _ = measured(family)
    assert set(found) == set(usage.descendants(family))
    assert 40 * MEGABYTE < sum(found.values()) < 60 * MEGABYTE < sum(map(usage.resident, found))


def test_who_keeps_the_kernel_from_telling_keeps_nobody_waiting(family, monkeypatch):
    monkeypatch.setattr(process_memory, "_PATIENCE", 0.5)
    first_told = usage.proportional(family)

    def stuck(pid):
        if pid != family:
            time.sleep(600)
        return first_told

    monkeypatch.setattr(usage, "proportional", stuck)
    found, longest = measured(family)
    assert longest < 60  # it would have been ten minutes
    (other,) = set(found) - {family}
    # It counts with all that it has, shared or not.
    assert found[family] == first_told
    assert found[other] == usage.resident(other) > 20 * MEGABYTE
