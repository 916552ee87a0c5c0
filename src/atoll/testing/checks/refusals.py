"""What a driver does not declare it refuses with Unsupported, before anything starts. One test a capability."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from ...errors import Unsupported
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks, Make
from ..needs import lacking


class RefusalChecks(Checks):
    """Refusals."""

    @lacking(Capability.COMMANDS)
    def test_commands_are_refused(self, sandbox: Sandbox) -> None:
        for attempt in (
            lambda: sandbox.run("true"),
            lambda: sandbox.run(["true"]),
            lambda: sandbox.start("true"),
            lambda: sandbox.start("true", pty=True),
            lambda: list(sandbox.stream("true")),
            lambda: sandbox.session().run("true"),
        ):
            with pytest.raises(Unsupported):
                attempt()
        assert sandbox.refresh().status == "running"

    @lacking(Capability.CODE)
    def test_code_is_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.run_code("1")

    @lacking(Capability.PTY)
    def test_a_terminal_is_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.start("true", pty=True)

    @lacking(Capability.WATCH)
    def test_watching_is_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.files.watch()

    @lacking(Capability.ISOLATION)
    def test_no_wall_is_claimed(self, sandbox: Sandbox) -> None:
        assert sandbox.refresh().walls == ()

    @lacking(Capability.NETWORK_NONE)
    def test_leaving_the_network_out_is_refused(self, make: Make, label: dict[str, str]) -> None:
        if Capability.ISOLATION in self.driver_class.capabilities:
            self.refuses(label, network="none")
        else:
            # "none" is what everybody gets who says nothing, so what has no wall at all lets it pass, and says so.
            assert make(network="none").info.walls == ()

    @lacking(Capability.NETWORK_ALL)
    def test_a_network_is_refused(self, label: dict[str, str]) -> None:
        self.refuses(label, network="all")

    @lacking(Capability.NETWORK_HOST)
    def test_the_host_s_network_is_refused(self, label: dict[str, str]) -> None:
        self.refuses(label, network="host")

    @lacking(Capability.LIMITS)
    def test_limits_are_refused(self, label: dict[str, str], sandbox: Sandbox) -> None:
        for resources in ({"memory": "64M"}, {"pids": 32}, {"disk": "64M"}, {"cpu": 0.5}):
            self.refuses(label, resources=resources)
        self.refuses(label, strict=True)
        assert set(sandbox.refresh().limits.values()) == {"none"}

    @lacking(Capability.LIFETIME)
    def test_another_lifetime_is_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.set_lifetime(300)

    @lacking(Capability.SOURCE)
    def test_source_is_refused(self, label: dict[str, str], tmp_path: pathlib.Path) -> None:
        self.refuses(label, source=tmp_path, preset="full-access")

    @lacking(Capability.IMAGE)
    def test_image_is_refused(self, label: dict[str, str], tmp_path: pathlib.Path) -> None:
        self.refuses(label, image=tmp_path)

    @lacking(Capability.PACKAGES)
    def test_packages_are_refused(self, label: dict[str, str], sandbox: Sandbox) -> None:
        self.refuses(label, packages=["numpy"])
        with pytest.raises(Unsupported):
            sandbox.install(["numpy"])

    @lacking(Capability.PAUSE)
    def test_pausing_is_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.pause()
        assert sandbox.files.list(".") is not None

    @lacking(Capability.STOP)
    def test_stopping_is_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.stop()
        assert sandbox.files.list(".") is not None

    @lacking(Capability.METRICS)
    def test_metrics_are_refused(self, sandbox: Sandbox) -> None:
        with pytest.raises(Unsupported):
            sandbox.metrics()

    def refuses(self, label: dict[str, str], **wishes: Any) -> None:
        with pytest.raises(Unsupported):
            self.create(labels=label, **wishes)
        assert Sandbox.list(label) == []

    @lacking(Capability.AUDIT)
    def test_listening_to_the_kernel_is_refused(self, label: dict[str, str]) -> None:
        self.refuses(label, audit=True)

    @lacking(Capability.PERMISSIONS)
    def test_rules_are_refused(self, label: dict[str, str], tmp_path: pathlib.Path) -> None:
        self.refuses(label, source=tmp_path, preset="development")
        self.refuses(label, source=tmp_path, preset="full-access", ignore=["*.log"])
