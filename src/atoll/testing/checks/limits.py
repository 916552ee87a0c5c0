"""Limits on the whole tree: each bounds, and leaves the sandbox usable. Each has a positive control."""

from __future__ import annotations

import time

import pytest

from ...errors import AtollError, Unsupported
from ...sync import Sandbox
from ...types import Capability, Resources
from ..base import Checks, Make
from ..needs import lacking, needs
from ..waiting import eventually

MEGABYTE = 1 << 20


def _hold(megabytes: int) -> str:
    """A tail of something without line breaks holds all of it in memory."""
    return f"head -c {megabytes * MEGABYTE} /dev/zero | tail -n 1 | wc -c"


class LimitChecks(Checks):
    """Limits."""

    @needs(Capability.LIMITS)
    def test_limits_are_promised_and_enforced_by_somebody(self, make: Make) -> None:
        sandbox = make(resources={"memory": "128M", "pids": 64})
        assert sandbox.info.spec.resources.memory == 128 * MEGABYTE
        limits = sandbox.refresh().limits
        assert limits["memory"] in ("kernel", "polled")
        assert limits["pids"] in ("kernel", "polled")

    @needs(Capability.COMMANDS, Capability.LIMITS)
    def test_memory_is_bounded(self, make: Make) -> None:
        sandbox = make(resources={"memory": "128M"})
        assert sandbox.run(_hold(8), timeout=60).stdout.strip() == str(8 * MEGABYTE)
        assert sandbox.run(_hold(400), timeout=60).stdout.strip() != str(400 * MEGABYTE)
        assert sandbox.run("echo usable").stdout == "usable\n"

    @needs(Capability.COMMANDS, Capability.LIMITS)
    def test_memory_is_bounded_for_all_processes_together(self, make: Make) -> None:
        sandbox = make(resources={"memory": "128M"})
        # Each of them is within the limit, and holds what it has until all of them are far beyond it.
        hold = 1 if sandbox.refresh().limits["memory"] == "kernel" else 5
        one = f"(head -c {50 * MEGABYTE} /dev/zero; sleep {hold}) | tail -n 1 | wc -c"
        assert sandbox.run(one, timeout=60).stdout.strip() == str(50 * MEGABYTE)
        crowd = " ".join(f"({one} > size-{n}) &" for n in range(6))
        sandbox.run(f"{crowd} wait", timeout=60)
        sizes = [sandbox.files.read(f"size-{n}").strip() for n in range(6)]
        assert sizes.count(str(50 * MEGABYTE)) < 3
        assert sandbox.run("echo usable").stdout == "usable\n"

    @needs(Capability.COMMANDS, Capability.LIMITS)
    def test_the_number_of_processes_is_bounded(self, make: Make) -> None:
        sandbox = make(resources={"pids": 32})
        assert sandbox.run("for i in 1 2 3 4 5; do sleep 0.1 & done; wait; echo all").stdout == "all\n"
        many = "i=0; while [ $i -lt 200 ]; do sleep 300 & i=$((i+1)); done; echo all; wait"
        process = sandbox.start(["sh", "-c", many])
        eventually(lambda: _has_failed_to_fork(sandbox, process.pid), "the limit is reached")
        # Where the number is polled, who ends the shell may not be through with its family.
        eventually(lambda: len(sandbox.processes()) <= 32, "there are no more")
        process.kill()
        eventually(lambda: sandbox.run("echo usable").stdout == "usable\n", "it is usable again")

    @needs(Capability.COMMANDS, Capability.LIMITS)
    def test_a_fork_bomb_is_bounded_and_ends_with_its_timeout(self, make: Make) -> None:
        sandbox, neighbour = make(resources={"pids": 48}), make()
        bomb = "f() { f & f & }; f; while :; do f; done"
        try:
            done = sandbox.run(bomb, timeout=1.0)
        except AtollError:
            done = None  # the guest itself may have had no process left to answer with
        assert done is None or not done.success
        assert neighbour.run("echo unharmed").stdout == "unharmed\n"
        eventually(lambda: _answers(sandbox), "it is usable again")

    @needs(Capability.COMMANDS, Capability.LIMITS)
    def test_disk_is_bounded(self, make: Make) -> None:
        sandbox = make(resources={"disk": "16M"})
        small, large = 4 * MEGABYTE, 64 * MEGABYTE
        written = sandbox.run(f"head -c {small} /dev/zero > small && wc -c < small").stdout
        assert written.strip() == str(small)
        # Where the limit is polled, it takes a moment until the command is killed.
        done = sandbox.run(f"head -c {large} /dev/zero > large && sleep 20", timeout=60)
        assert not done.success
        assert not done.timed_out
        assert sandbox.files.info("large").size < large
        sandbox.run("rm -f large", check=True)
        eventually(lambda: sandbox.run("echo works > again && cat again").stdout == "works\n", "it is usable again")

    @needs(Capability.COMMANDS, Capability.LIMITS, Capability.METRICS)
    def test_cpu_is_bounded(self, make: Make, label: dict[str, str]) -> None:
        try:
            sandbox = make(resources={"cpu": 0.1}, labels=label)
        except Unsupported:
            # A host may have nothing to hold it with; then it is refused before anything starts.
            assert Sandbox.list(label) == []
            return
        begun, before = time.monotonic(), sandbox.metrics().cpu_seconds
        sandbox.run("while :; do :; done", timeout=2.0)
        used, passed = sandbox.metrics().cpu_seconds, time.monotonic() - begun
        assert before is not None
        assert used is not None
        assert 0 < used - before < 0.5 * passed

    @needs(Capability.LIMITS, Capability.CODE)
    @lacking(Capability.COMMANDS)
    def test_memory_of_a_cell_is_bounded(self, make: Make) -> None:
        sandbox = make(resources={"memory": "160M"})
        assert sandbox.run_code(f"len(bytearray({8 * MEGABYTE}))").text == str(8 * MEGABYTE)
        assert not sandbox.run_code(f"len(bytearray({400 * MEGABYTE}))", timeout=60).success
        assert sandbox.run_code("'usable'").text == "'usable'"

    @needs(Capability.LIMITS, Capability.CODE)
    @lacking(Capability.COMMANDS)
    def test_what_a_cell_writes_is_bounded(self, make: Make) -> None:
        sandbox = make(resources={"disk": "16M"})
        code = "import time\nopen({name!r}, 'wb').write(bytes({size}))\ntime.sleep({wait})\n'written'"
        small = code.format(name="small", size=4 * MEGABYTE, wait=0)
        assert sandbox.run_code(small).text == "'written'"
        # Where the limit is polled, it takes a moment until the cell is killed.
        done = sandbox.run_code(code.format(name="large", size=64 * MEGABYTE, wait=20), timeout=60)
        assert not done.success
        assert not done.timed_out
        sandbox.files.remove("large")
        eventually(lambda: sandbox.run_code(small).text == "'written'", "it is usable again")

    @needs(Capability.LIMITS, Capability.CODE, Capability.METRICS)
    @lacking(Capability.COMMANDS)
    def test_the_processor_time_of_a_cell_is_bounded(self, make: Make, label: dict[str, str]) -> None:
        try:
            sandbox = make(resources={"cpu": 0.1}, labels=label)
        except Unsupported:
            assert Sandbox.list(label) == []
            return
        sandbox.run_code("1")
        begun, before = time.monotonic(), sandbox.metrics().cpu_seconds
        sandbox.run_code("while True: pass", timeout=2.0)
        used, passed = sandbox.metrics().cpu_seconds, time.monotonic() - begun
        assert before is not None
        assert used is not None
        assert 0 < used - before < 0.5 * passed

    @needs(Capability.COMMANDS, Capability.LIMITS)
    def test_strict_is_enforced_by_the_kernel_or_refused(self, make: Make, label: dict[str, str]) -> None:
        try:
            sandbox = make(strict=True, labels=label)
        except Unsupported:
            assert Sandbox.list(label) == []
            return
        limits = sandbox.refresh().limits
        assert "polled" not in {limits[name] for name in Resources._fields}
        assert sandbox.run("echo works").stdout == "works\n"

    @needs(Capability.LIMITS)
    def test_what_no_sandbox_can_live_with_is_refused(self, label: dict[str, str]) -> None:
        for resources in ({"memory": 1}, {"pids": 1}, {"disk": 1}, {"cpu": 0}, {"memory": "lots"}, {"colour": "red"}):
            with pytest.raises(ValueError, match=next(iter(resources))):
                self.create(resources=resources, labels=label)
        assert Sandbox.list(label) == []


def _has_failed_to_fork(sandbox: Sandbox, pid: int) -> bool:
    """A shell that cannot fork gives up."""
    return pid not in {process.pid for process in sandbox.processes()}


def _answers(sandbox: Sandbox) -> bool:
    try:
        return sandbox.run("echo usable", timeout=10).stdout == "usable\n"
    except AtollError:
        return False
