"""Variables from outside, and state that outlasts a stop."""

from __future__ import annotations

import os

import pytest

from ...errors import InvalidInput, Unsupported
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks, Make
from ..needs import lacking, needs

STATE = "import math\nx = y = [1]\ndef f(): return x\nclass C:\n    def m(self): return f()\nc = C()"


class LastingChecks(Checks):
    """Variables and lasting state."""

    @needs(Capability.CODE)
    def test_variables_pass_both_ways_exactly(self, sandbox: Sandbox) -> None:
        context = os.urandom(6).hex()
        value = {"text": "ü\ud800", "numbers": [1, -(2**70), 1.5, float("inf")], "none": None, "yes": True}
        sandbox.variables.set("value", value, context)
        assert sandbox.run_code("copy = dict(value); value['numbers'][0]", context=context).text == "1"
        assert sandbox.variables.get("copy", context) == value
        content = os.urandom(3_000_000)
        sandbox.variables.set("content", content, context)
        assert sandbox.variables.get("content", context) == content
        assert [each.name for each in sandbox.variables.list(context)] == ["value", "copy", "content"]
        sandbox.variables.clear(context=context)
        with pytest.raises(InvalidInput, match="no variable"):
            sandbox.variables.get("value", context)

    @needs(Capability.CODE)
    def test_values_of_other_types_are_refused(self, sandbox: Sandbox) -> None:
        context = os.urandom(6).hex()
        sandbox.run_code("things = {1, 2}", context=context)
        with pytest.raises(InvalidInput, match="set"):
            sandbox.variables.get("things", context)
        with pytest.raises(InvalidInput, match="set"):
            sandbox.variables.set("things", {1, 2}, context)

    @needs(Capability.CODE, Capability.STOP)
    def test_variables_functions_classes_and_imports_outlast_a_stop(self, make: Make) -> None:
        sandbox = make()
        sandbox.run_code(STATE)
        sandbox.run_code("z = 'other'\nfile = open('f', 'w')", context="second")
        report = sandbox.stop()
        assert list(report.lost) == ["second/file"]
        sandbox.resume()
        again = sandbox.run_code("y.append(2); c.m(), x is y, math.floor(math.pi)")
        assert (again.text, again.stderr) == ("([1, 2], True, 3)", "")
        other = sandbox.run_code("z", context="second")
        assert other.text == "'other'"
        assert "file" in other.stderr

    @needs(Capability.CODE, Capability.STOP)
    def test_a_checkpoint_changes_nothing_that_runs(self, make: Make) -> None:
        sandbox = make()
        sandbox.run_code("x = 1")
        assert sandbox.checkpoint().saved == 1
        assert sandbox.run_code("x").text == "1"
        assert sandbox.refresh().status == "running"

    @needs(Capability.COMMANDS)
    @lacking(Capability.STOP)
    def test_checkpoints_are_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.checkpoint()
        assert sandbox.run("echo on").stdout == "on\n"
