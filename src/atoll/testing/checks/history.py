"""Snapshots, rollbacks and forks."""

from __future__ import annotations

import os

import pytest

from ...errors import Busy, InvalidInput, SnapshotNotFound, Unsupported
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks, Make
from ..needs import lacking, needs
from ..waiting import eventually

HELD = "exec 3>held; echo ready; sleep 1000"


def new_name() -> str:
    return "conformance-" + os.urandom(6).hex()


class HistoryChecks(Checks):
    """Snapshots and forks."""

    @needs(Capability.COMMANDS, Capability.SNAPSHOT)
    def test_a_sandbox_begins_where_a_snapshot_was_taken(self, make: Make) -> None:
        first = make()
        first.run('echo one > f; mkdir -p d/e; ln -s f link; echo t > "$TMPDIR/t"; echo h > ~/h; chmod 700 d')
        name = new_name()
        taken = first.snapshot(name)
        assert (taken.name, taken.sandbox) == (name, first.id)
        first.run("echo two > f; rm -r d")
        second = make(snapshot=name)
        assert second.run('cat f link "$TMPDIR/t" ~/h; stat -c %a d; ls d').stdout == "one\none\nt\nh\n700\ne\n"
        assert second.run("echo three > f && rm -r d && echo x > g && cat f").stdout == "three\n"
        assert first.run("cat f; ls d || echo gone").stdout == "two\ngone\n"

    @needs(Capability.SNAPSHOT, Capability.CODE)
    def test_variables_go_with_it(self, make: Make) -> None:
        first = make()
        first.run_code("x = [1]; handle = open('/dev/null')")
        name = new_name()
        assert list(first.snapshot(name).lost) == ["main/handle"]
        assert first.run_code("x.append(2); x").text == "[1, 2]"
        second = make(snapshot=name)
        assert second.run_code("x").text == "[1]"

    @needs(Capability.COMMANDS, Capability.SNAPSHOT, Capability.CODE)
    def test_a_rollback_brings_files_and_variables_back(self, make: Make) -> None:
        sandbox = make()
        sandbox.run_code("x = 1")
        sandbox.run("echo one > f")
        name = new_name()
        sandbox.snapshot(name)
        sandbox.run_code("x = 2; y = 3")
        sandbox.run("echo two > f; echo new > g")
        sandbox.start("sleep 98765")
        # It is listed by another name until it has become the program.
        eventually(lambda: any("98765" in each.command for each in sandbox.processes()), "it is listed")
        sandbox.rollback(name)
        assert sandbox.run("cat f; ls").stdout == "one\nf\n"
        assert sandbox.run_code("x, 'y' in globals()").text == "(1, False)"
        assert not any("98765" in each.command for each in sandbox.processes())
        sandbox.rollback(name)
        assert sandbox.run("cat f").stdout == "one\n"

    @needs(Capability.COMMANDS, Capability.SNAPSHOT)
    def test_what_runs_goes_on_where_it_is(self, make: Make) -> None:
        sandbox = make()
        sandbox.run("mkdir -p deep/er")
        with sandbox.session(workdir="deep/er") as shell:
            here = shell.run("word=kept; pwd").stdout
            assert here.endswith("/workspace/deep/er\n")
            for _ in range(3):
                sandbox.snapshot(new_name())
                assert shell.run("echo $word >> log; pwd; ls").stdout == f"{here}log\n"
        assert sandbox.run("cat deep/er/log").stdout == "kept\n" * 3

    @needs(Capability.COMMANDS, Capability.SNAPSHOT)
    def test_who_holds_a_file_open_is_named_or_ended(self, make: Make) -> None:
        sandbox = make()
        held = sandbox.start(HELD)
        assert next(iter(held)).text == "ready\n"
        name = new_name()
        with pytest.raises(Busy, match=rf"Process {held.pid} .*/workspace/held"):
            sandbox.snapshot(name)
        assert sandbox.run("echo on > f && cat f").stdout == "on\n"
        assert sandbox.snapshot(name, force=True).name == name
        assert held.pid not in [each.pid for each in sandbox.processes()]

    @needs(Capability.SNAPSHOT)
    def test_names_are_checked(self, make: Make) -> None:
        sandbox = make()
        name = new_name()
        sandbox.snapshot(name)
        with pytest.raises(InvalidInput, match="already"):
            sandbox.snapshot(name)
        for wrong in ("", "../x", "a b", "x" * 101):
            with pytest.raises(InvalidInput):
                sandbox.snapshot(wrong)
        with pytest.raises(SnapshotNotFound):
            make(snapshot=new_name())
        with pytest.raises(SnapshotNotFound):
            sandbox.rollback(new_name())
        with pytest.raises(InvalidInput, match="of the sandbox"):
            make().rollback(name)

    @needs(Capability.COMMANDS, Capability.FORK, Capability.CODE)
    def test_twins_go_their_own_ways(self, make: Make) -> None:
        parent = make()
        parent.run_code("x = [0]")
        parent.run("echo shared > f")
        twins = parent.fork(3)
        try:
            for number, twin in enumerate(twins, 1):
                assert twin.run_code(f"x.append({number}); x").text == f"[0, {number}]"
                twin.run(f"echo {number} > f")
            assert [twin.run("cat f").stdout for twin in twins] == ["1\n", "2\n", "3\n"]
            assert parent.run_code("x").text == "[0]"
            assert parent.run("cat f").stdout == "shared\n"
            parent.destroy()
            child = twins[0].fork()
            twins.append(child)
            assert child.run_code("x").text == "[0, 1]"
            assert len({twin.id for twin in twins}) == 4
        finally:
            for twin in twins:
                twin.destroy()

    @lacking(Capability.SNAPSHOT)
    def test_snapshots_are_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.snapshot()
        with pytest.raises(Unsupported):
            sandbox.rollback("any")
        with pytest.raises(Unsupported):
            self.create(snapshot="any")

    @lacking(Capability.FORK)
    def test_forks_are_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.fork()
