"""Path permissions, and the gate between a sandbox and its source."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import pytest

from ...errors import FileDenied, FileError, FileMissing, InvalidInput, Unsupported
from ...sync import Sandbox
from ...types import Capability, PathRule
from ..base import Checks, Make
from ..needs import lacking, needs

RULES = [
    PathRule("**", "read"),
    PathRule("/shown/**", "view"),
    PathRule("/open/**", "write"),
    PathRule("**/.env*", "none", priority=1),
    PathRule("secrets", "none", kind="directory", priority=1),
]
FILES = {
    "read.txt": "read me\n",
    "shown/size.txt": "twelve bytes",
    "open/file.txt": "one\n",
    "open/.env": "TOKEN=1",
    ".env.local": "TOKEN=2",
    "secrets/deep/key": "k",
    "open/locked.txt": "two\n",
    "deep/er/tool.sh": "#!/bin/sh\necho ran\n",
}
LOCKED = PathRule("/open/locked.txt", "read", kind="file")
HIDDEN = ("open/.env", ".env.local", "secrets/deep/key", "secrets")
READABLE = ("read.txt", "open/locked.txt", "deep/er/tool.sh")


class PermissionChecks(Checks):
    """Path permissions and review."""

    @pytest.fixture
    def source(self, tmp_path: pathlib.Path) -> pathlib.Path:
        root = tmp_path / "source"
        for name, content in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        (root / "deep/er/tool.sh").chmod(0o755)
        # What was changed within a tick before a sandbox begins counts as changed after it: no time stamp tells.
        time.sleep(0.02)
        return root

    def over(self, make: Make, source: pathlib.Path, **wishes: Any) -> Sandbox:
        return make(source=source, permissions=[*RULES, LOCKED], **wishes)

    @needs(Capability.COMMANDS, Capability.PERMISSIONS)
    def test_each_level_holds_for_commands(self, make: Make, source: pathlib.Path) -> None:
        sandbox = self.over(make, source)
        assert sandbox.info.view
        shown = set(sandbox.run("find . -type f").stdout.split())
        assert shown == {f"./{name}" for name in FILES if name not in HIDDEN}
        for name in HIDDEN:
            assert not sandbox.run(["cat", name]).success
            assert not sandbox.run(["stat", name]).success
        assert sandbox.run("stat -c %s shown/size.txt").stdout == "12\n"
        assert not sandbox.run("cat shown/size.txt").success
        assert sandbox.run("deep/er/tool.sh").stdout == "ran\n"
        for name in READABLE:
            assert sandbox.run(["cat", name]).stdout == FILES[name]
            for attempt in ("echo x > {}", "rm -f {}", "mv {} open/moved", "chmod 777 {}", "touch {}", "ln {} open/l"):
                sandbox.run(attempt.format(name))
                assert sandbox.run(["cat", name]).stdout == FILES[name], attempt
        assert sandbox.run("echo more >> open/file.txt && cat open/file.txt").stdout == "one\nmore\n"
        assert sandbox.run("echo new > open/new && cat open/new").stdout == "new\n"
        assert not sandbox.run("echo x > new").success
        assert {name: (source / name).read_text() for name in FILES} == FILES

    @needs(Capability.PERMISSIONS)
    def test_each_level_holds_for_the_file_api(self, make: Make, source: pathlib.Path, tmp_path: pathlib.Path) -> None:
        files = self.over(make, source).files
        for name in HIDDEN:
            assert not files.exists(name)
            with pytest.raises(FileMissing):
                files.read(name)
        assert files.info("shown/size.txt").size == 12
        with pytest.raises(FileDenied):
            files.read("shown/size.txt")
        assert files.read("read.txt") == FILES["read.txt"]
        with pytest.raises(FileError):
            files.write("read.txt", "changed")
        with pytest.raises(FileError):
            files.remove("read.txt")
        with pytest.raises(FileError):
            files.move("read.txt", "open/read.txt")
        files.write("open/file.txt", "two\n")
        assert files.read("open/file.txt") == "two\n"
        assert {each.path for each in files.search("*", content="TOKEN")} == set()
        files.download("open", tmp_path / "got")
        assert sorted(each.name for each in (tmp_path / "got").iterdir()) == ["file.txt", "locked.txt"]
        (tmp_path / "up").mkdir()
        (tmp_path / "up" / "read.txt").write_text("mine")
        with pytest.raises(FileError):
            files.upload(tmp_path / "up" / "read.txt", "read.txt")

    @needs(Capability.COMMANDS, Capability.PERMISSIONS)
    def test_a_source_without_rules_shows_no_secrets_and_is_not_written(self, make: Make, source: pathlib.Path) -> None:
        (source / ".env").write_text("TOKEN=1\n")
        sandbox = make(source=source)
        assert not sandbox.run("cat .env").success
        assert sandbox.run("cat read.txt").stdout == FILES["read.txt"]
        assert not sandbox.run("echo x > read.txt").success
        assert sandbox.run("echo made > output/made && cat output/made").stdout == "made\n"
        assert make(source=source, preset="full-access").run("cat .env; echo x > read.txt").stdout == "TOKEN=1\n"

    @needs(Capability.PERMISSIONS)
    def test_explain_names_the_rule(self, make: Make, source: pathlib.Path) -> None:
        sandbox = self.over(make, source)
        assert sandbox.explain("open/locked.txt")[:3] == ("open/locked.txt", "read", LOCKED)
        assert sandbox.explain("/workspace/secrets/deep/key").level == "none"
        assert sandbox.explain("open/x").level == "write"

    @needs(Capability.COMMANDS, Capability.PERMISSIONS, Capability.LIVE_RULES)
    def test_rules_are_exchanged_while_it_runs(self, make: Make, source: pathlib.Path) -> None:
        sandbox = self.over(make, source)
        sandbox.run_code("import os; os.chdir('open'); kept = 1")
        sandbox.run("echo mine > open/mine")
        sandbox.set_permissions("read-only")
        assert sandbox.run("cat open/mine secrets/deep/key").stdout == "mine\nk"
        assert not sandbox.run("echo x > open/mine").success
        assert sandbox.run_code("os.getcwd(), kept, os.access('mine', os.W_OK)").text == "('/workspace/open', 1, False)"
        sandbox.set_permissions([PathRule("/open/**", "write")])
        assert sandbox.run("ls").stdout == "open\n"
        assert sandbox.run("echo x >> open/mine && cat open/mine").stdout == "mine\nx\n"
        now = sandbox.refresh().spec.permissions
        assert now is not None
        assert now.rules == (PathRule("/open/**", "write"),)

    @needs(Capability.COMMANDS, Capability.PERMISSIONS)
    @lacking(Capability.LIVE_RULES)
    def test_rules_that_cannot_be_exchanged_stay(self, make: Make, source: pathlib.Path) -> None:
        sandbox = self.over(make, source)
        before = sandbox.refresh().spec.permissions
        with pytest.raises(Unsupported):
            sandbox.set_permissions("full-access")
        assert sandbox.refresh().spec.permissions == before
        assert not sandbox.run("cat .env.local; cat secrets/deep/key").stdout
        assert not sandbox.run("echo x > read.txt").success
        assert sandbox.run("cat read.txt; echo x > open/new && cat open/new").stdout == "read me\nx\n"

    @needs(Capability.COMMANDS, Capability.PERMISSIONS)
    def test_what_is_ignored_is_not_there(self, make: Make, source: pathlib.Path) -> None:
        sandbox = make(source=source, preset="full-access", ignore=["secrets/", "*.txt", "!read.txt"])
        assert sandbox.run("cat read.txt").stdout == FILES["read.txt"]
        assert not sandbox.run("ls secrets || ls open/file.txt").success
        assert sandbox.explain("secrets").level == "none"

    @needs(Capability.COMMANDS, Capability.REVIEW)
    def test_only_what_the_rules_let_be_written_reaches_the_source(self, make: Make, source: pathlib.Path) -> None:
        sandbox = self.over(make, source)
        sandbox.run("echo two > open/file.txt; echo n > open/new; mkdir -p open/d; ln -s /etc/passwd open/link")
        changed = {each.path: each.kind for each in sandbox.diff()}
        assert changed == {
            "open/file.txt": "modified", "open/new": "added", "open/d": "added", "open/link": "added"
        }  # fmt: skip
        assert (source / "open/file.txt").read_text() == "one\n"
        outcome = sandbox.apply()
        assert set(outcome.applied) == {"open/file.txt", "open/new", "open/d"}
        assert set(outcome.rejected) == {"open/link"}
        assert (source / "open/file.txt").read_text() == "two\n"
        assert not os.path.lexists(source / "open/link")
        assert {name: (source / name).read_text() for name in FILES} == {**FILES, "open/file.txt": "two\n"}

    @needs(Capability.COMMANDS, Capability.REVIEW)
    def test_a_source_that_moved_on_is_not_overwritten(self, make: Make, source: pathlib.Path) -> None:
        sandbox = make(source=source, preset="full-access")
        sandbox.run("echo theirs > read.txt; echo other > open/file.txt")
        (source / "read.txt").write_text("ours")
        outcome = sandbox.apply()
        assert (set(outcome.conflicts), outcome.applied) == ({"read.txt"}, ())
        assert (source / "read.txt").read_text() == "ours"
        assert sandbox.apply(on_conflict="keep").applied == ("open/file.txt",)
        assert (source / "read.txt").read_text() == "ours"
        assert sandbox.apply(on_conflict="take").applied == ("read.txt",)
        assert (source / "read.txt").read_text() == "theirs\n"

    @needs(Capability.COMMANDS, Capability.REVIEW)
    def test_discarded_changes_are_gone(self, make: Make, source: pathlib.Path) -> None:
        sandbox = make(source=source, preset="full-access")
        sandbox.run("echo x > read.txt; rm -r deep; echo kept > /tmp/kept")
        sandbox.discard()
        assert sandbox.diff() == []
        assert sandbox.run("cat read.txt /tmp/kept; deep/er/tool.sh").stdout == "read me\nkept\nran\n"

    @needs(Capability.REVIEW)
    def test_without_a_source_there_is_nothing_to_compare(self, sandbox: Sandbox) -> None:
        for call in (sandbox.diff, sandbox.apply, sandbox.discard):
            with pytest.raises(InvalidInput, match="source"):
                call()

    @lacking(Capability.PERMISSIONS)
    def test_permissions_are_refused(self, tmp_path: pathlib.Path, sandbox: Sandbox) -> None:
        for wishes in ({}, {"preset": "agent-safe"}, {"permissions": [("**", "read")]}, {"ignore": ["*.o"]}):
            with pytest.raises(Unsupported):
                self.create(source=tmp_path, **wishes)
        with pytest.raises(Unsupported):
            sandbox.set_permissions("read-only")

    @lacking(Capability.REVIEW)
    def test_review_is_refused(self, sandbox: Sandbox) -> None:
        for call in (sandbox.diff, sandbox.apply, sandbox.discard):
            with pytest.raises(Unsupported):
                call()
