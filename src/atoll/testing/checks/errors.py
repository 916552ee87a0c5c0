"""Bad input: a sentence that says what is wrong, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import AtollError, InvalidInput, SandboxNotFound, UnknownDriver, Unsupported
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks
from ..needs import needs

WRONG: list[dict[str, Any]] = [
    {"timeout": 0},
    {"timeout": -1},
    {"timeout": "soon"},
    {"timeout": float("nan")},
    {"lifetime": None},
    {"lifetime": 0},
    {"lifetime": float("inf")},
    {"workdir": "relative"},
    {"workdir": "/a/../b"},
    {"workdir": "/proc/x"},
    {"env": {"A=B": "x"}},
    {"env": {"A": "nul\0"}},
    {"env": {"A": 5}},
    {"network": "some"},
    {"network": 5},
    {"strict": "yes"},
    {"image": ""},
    {"source": "nul\0"},
    {"permissions": {"*": "read"}},
    {"permissions": "agent-safe"},
    {"snapshot": "../x"},
]
LATER: list[dict[str, Any]] = [
    {"network": ["example.com"]},
    {"gpu": "any"},
    {"fallback": ["docker"]},
]


class ErrorChecks(Checks):
    """Bad input."""

    def test_an_unknown_driver_is_named_with_those_there_are(self) -> None:
        with pytest.raises(UnknownDriver) as caught:
            Sandbox.create(self.driver_class.name + "x")
        assert self.driver_class.name in str(caught.value)

    def test_an_unknown_id_is_not_found(self) -> None:
        for id in ("no-such-sandbox", "", "../../etc/passwd", "x" * 10_000):
            with pytest.raises(SandboxNotFound):
                Sandbox.connect(id)

    def test_labels_that_cannot_be_are_refused(self) -> None:
        bad: list[Any] = [{"": "x"}, {"a b": "x"}, {"a": "x\n"}, {"a": 5}, {"k" * 64: "x"}, {"a": "x" * 257}, ["a"]]
        for labels in bad:
            with pytest.raises(InvalidInput, match="label"):
                self.create(labels=labels)
            with pytest.raises(InvalidInput, match="label"):
                Sandbox.find(labels)
        with pytest.raises(InvalidInput):
            Sandbox.find({})

    def test_what_cannot_be_is_refused_before_anything_starts(self, label: dict[str, str]) -> None:
        for wish in WRONG:
            with pytest.raises(InvalidInput, match=next(iter(wish))):
                self.create(labels=label, **wish)
        assert Sandbox.list(label) == []

    def test_what_is_planned_is_refused_and_not_ignored(self, label: dict[str, str]) -> None:
        for wish in LATER:
            with pytest.raises(Unsupported, match=next(iter(wish))):
                self.create(labels=label, **wish)
        with pytest.raises(TypeError):
            self.create(labels=label, colour="red")
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS)
    def test_a_command_that_cannot_be_is_refused(self, sandbox: Sandbox) -> None:
        bad: list[Any] = [[], [""], ["a", 5], ["nul\0"], "nul\0", b"bytes", None, ["x" * (1 << 20)], 5]
        for command in bad:
            with pytest.raises(InvalidInput):
                sandbox.run(command)
        wrong: list[dict[str, Any]] = [
            {"timeout": 0},
            {"timeout": "soon"},
            {"max_output": 0},
            {"env": {"": "x"}},
            {"stdin": 5},
        ]
        for wish in wrong:
            with pytest.raises(InvalidInput):
                sandbox.run("true", **wish)

    @needs(Capability.COMMANDS)
    def test_a_pid_or_signal_that_cannot_be_is_refused(self, sandbox: Sandbox) -> None:
        for pid, number in ((0, 15), (-1, 15), (1 << 40, 15), (True, 15), (1, 0), (1, 99)):
            with pytest.raises(InvalidInput):
                sandbox.signal(pid, number)
        wrong: list[Any] = [0, -1, "1"]
        for pid in wrong:
            with pytest.raises(InvalidInput):
                sandbox.attach(pid)

    def test_every_error_has_a_code_and_one_line(self) -> None:
        with pytest.raises(AtollError) as caught:
            Sandbox.connect("no-such-sandbox")
        assert caught.value.code == "sandbox_not_found"
        assert "no-such-sandbox" in str(caught.value)
        assert "\n" not in str(caught.value)
