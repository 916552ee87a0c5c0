"""What `ps` shows of atoll's processes: what each is, and for which sandbox; and how those end that only wait."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from atoll import Sandbox
from atoll.engine import kernel, launch


@pytest.fixture
def home(monkeypatch):
    path = tempfile.mkdtemp(prefix="an-", dir="/tmp")
    monkeypatch.setenv("ATOLL_HOME", path)
    yield path
    launch.stop_helpers(path)
    shutil.rmtree(path, ignore_errors=True)


def title(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
    except OSError:
        return ""


def family(pid):
    """A keeper's whole family: the zygote, and everybody below it."""
    found = [parent(pid)]
    for each in found:
        for task in pathlib.Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def test_every_helper_says_what_it_is_and_for_whom(home):
    with Sandbox.create("jail") as sandbox:
        keeper = next(pid for pid in all_pids() if title(pid) == f"atoll: keeper {sandbox.id}")
        assert title(keeper) == f"atoll: keeper {sandbox.id}"
        titles = {title(pid) for pid in family(keeper)} - {""}
        assert {"atoll: zygote", "atoll: stem", "atoll: guest"} <= titles
        assert not any("exec(" in each for each in titles)
        inside = sandbox.run("tr '\\0' ' ' < /proc/1/cmdline").stdout
        assert inside.strip() == "atoll: guest", "and inside it tells nothing of the host"


def test_a_sandbox_is_not_in_its_keepers_session(home):
    """By sessions the kernel shares out the processors where there is no control group for them: with all in one, a
    keeper beside a thousand hostile processes would have a thousandth."""
    with Sandbox.create("jail") as sandbox:
        keeper = next(pid for pid in all_pids() if title(pid) == f"atoll: keeper {sandbox.id}")
        guest = next(pid for pid in family(keeper) if title(pid) == "atoll: guest" and parent(pid) == keeper)
        assert session(guest) == guest
        assert session(keeper) == parent(keeper), "keepers are in their zygote's"


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def session(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def test_helpers_end_when_asked_and_sandboxes_live_on(home):
    with Sandbox.create("jail") as sandbox:
        keeper = next(pid for pid in all_pids() if title(pid) == f"atoll: keeper {sandbox.id}")
        helpers = [pid for pid in family(keeper) if title(pid) in ("atoll: zygote", "atoll: stem")]
        assert len(helpers) >= 2, "and what the stem has just forked, and is about to say what it is"
        words = [sys.executable, "-m", "atoll", "doctor", "--stop-helpers"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout == "Helpers that were asked to end: 1.\n"
        until = time.monotonic() + 30
        while any(title(pid) in ("atoll: zygote", "atoll: stem") for pid in helpers):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert sandbox.run("echo on").stdout == "on\n"
        assert title(keeper) == f"atoll: keeper {sandbox.id}"


def test_a_process_takes_a_title_and_reads_as_it():
    code = (
        "from atoll.engine import kernel\nkernel.find_arguments()\n"
        "kernel.name_process('atoll-probe', of='sb-x')\n"
        "print(open('/proc/self/comm').read().strip(), open('/proc/self/cmdline').read().rstrip(chr(0)))\n"
        "kernel.name_process('atoll-probe', 'x' * 10000)\n"
        "told = open('/proc/self/cmdline').read()\nprint(set(told.rstrip(chr(0))), len(told) < 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "atoll-probe atoll: probe sb-x\n{'x'} True\n"


def test_without_arguments_of_ours_nothing_is_written():
    before = title(os.getpid())
    assert kernel._arguments == (0, 0)
    assert title(os.getpid()) == before
