"""Python packages: in contexts and commands, read-only, and why there are none."""

from __future__ import annotations

import pathlib
from typing import ClassVar

import pytest

from ...errors import InvalidInput, PackagesFailed
from ...sync import Sandbox
from ...types import Capability
from .. import wheels
from ..base import Checks, Make
from ..needs import needs

ONE, OTHER = "atoll-probe-one", "atoll-probe-other"


class PackageChecks(Checks):
    """Packages."""

    _index: ClassVar[pathlib.Path | None] = None

    @pytest.fixture
    def index(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
        """Where packages come from: a directory that holds two of them, one of which needs the other.

        All tests of the class have the same, so that an environment is built once.
        """
        cls = type(self)
        if cls._index is None:
            cls._index = place = tmp_path_factory.mktemp("index")
            script = {
                "atoll_probe_one-1.0.dist-info/entry_points.txt": "[console_scripts]\nprobe-one = probe_one:main\n"
            }
            module = "from probe_other import WORD\ndef main():\n    print('script', WORD)\n"
            wheels.make(place, ONE, {"probe_one/__init__.py": module, **script}, needs=OTHER)
            wheels.make(place, OTHER, {"probe_other.py": "WORD = 'other'\n"})
        wheels.use_only(cls._index, monkeypatch)
        return cls._index

    @needs(Capability.COMMANDS, Capability.PACKAGES, Capability.CODE)
    def test_packages_are_there_for_code_commands_and_scripts(self, make: Make, index: pathlib.Path) -> None:
        sandbox = make(packages=[ONE])
        assert sandbox.info.spec.packages == (ONE,)
        assert sandbox.run_code("import probe_one; probe_one.WORD").text == "'other'"
        assert sandbox.run(["python3", "-c", "import probe_one; print(probe_one.WORD)"]).stdout == "other\n"
        assert sandbox.run("probe-one").stdout == "script other\n"
        assert make().run_code("import probe_one").error is not None

    @needs(Capability.COMMANDS, Capability.PACKAGES, Capability.CODE)
    def test_packages_cannot_be_changed(self, make: Make, index: pathlib.Path) -> None:
        sandbox = make(packages=[ONE])
        where = sandbox.run_code("import probe_other; print(probe_other.__file__, end='')").stdout
        assert sandbox.run(["sh", "-c", 'cat "$0"', where]).stdout == "WORD = 'other'\n"
        assert sandbox.run(["sh", "-c", 'echo changed > "$0"; rm -f "$0"', where]).exit_code != 0
        assert make(packages=[ONE]).run_code("import probe_other; probe_other.WORD").text == "'other'"

    @needs(Capability.PACKAGES, Capability.CODE, Capability.STOP)
    def test_packages_are_there_after_a_stop(self, make: Make, index: pathlib.Path) -> None:
        sandbox = make(packages=[ONE])
        sandbox.stop()
        sandbox.resume()
        assert sandbox.run_code("import probe_other; probe_other.WORD").text == "'other'"

    @needs(Capability.PACKAGES)
    def test_packages_that_do_not_exist_are_told(self, label: dict[str, str], index: pathlib.Path) -> None:
        said: list[str] = []
        for _ in range(2):
            with pytest.raises(PackagesFailed, match="atoll-probe-none"):
                self.create(packages=["atoll-probe-none"], labels=label, on_progress=said.append)
            assert Sandbox.list(label) == []
        assert any("atoll-probe-none" in line for line in said)

    @needs(Capability.PACKAGES)
    def test_what_is_no_package_is_refused(self, label: dict[str, str]) -> None:
        for wrong in ("--index-url=https://example.com", "-r requirements.txt", "a\nb", "./here", "git+ssh://x/y"):
            with pytest.raises(InvalidInput):
                self.create(packages=[wrong], labels=label)
        assert Sandbox.list(label) == []

    @needs(Capability.PACKAGES, Capability.NETWORK_NONE, Capability.CODE)
    def test_packages_are_installed_later_without_a_network(self, make: Make, index: pathlib.Path) -> None:
        sandbox = make(network="none")
        assert sandbox.run_code("import probe_one").error is not None
        sandbox.install([ONE])
        assert sandbox.run_code("import probe_one; probe_one.WORD").text == "'other'"
