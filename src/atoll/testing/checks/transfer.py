"""Files and trees between this machine and the sandbox, and watching what changes."""

from __future__ import annotations

import os
import pathlib
import threading

import pytest

from ...errors import FileError, FileMissing, TimedOut
from ...sync import Sandbox
from ...sync.process import Watch
from ...types import Capability
from ..base import Checks
from ..needs import needs
from ..waiting import PATIENCE

Tree = dict[str, str | bytes | None]


class TransferChecks(Checks):
    """Upload, download, watch."""

    def test_a_file_goes_in_and_comes_out(self, sandbox: Sandbox, place: str, tmp_path: pathlib.Path) -> None:
        data = os.urandom(2 << 20)
        (tmp_path / "in").write_bytes(data)
        (tmp_path / "in").chmod(0o755)
        assert sandbox.files.upload(tmp_path / "in", f"{place}/sub/file").size == len(data)
        assert sandbox.files.read_bytes(f"{place}/sub/file") == data
        assert sandbox.files.info(f"{place}/sub/file").mode & 0o111
        assert sandbox.files.download(f"{place}/sub/file", tmp_path / "out").files == 1
        assert (tmp_path / "out").read_bytes() == data

    @needs(Capability.COMMANDS)
    def test_a_tree_goes_in_and_comes_out(self, sandbox: Sandbox, place: str, tmp_path: pathlib.Path) -> None:
        source = _tree(tmp_path / "source")
        moved = sandbox.files.upload(source, f"{place}/tree")
        assert (moved.files, moved.symlinks, moved.skipped) == (24, 1, ())
        assert sandbox.run("./run.sh; cat 'sub dir/link'", workdir=f"{place}/tree").stdout == "runs\n7"
        assert sandbox.files.download(f"{place}/tree", tmp_path / "back", symlinks=True) == moved
        assert _content(tmp_path / "back") == _content(source)
        assert os.access(tmp_path / "back" / "run.sh", os.X_OK)

    def test_a_download_is_refused_whole_or_done_whole(
        self, sandbox: Sandbox, place: str, tmp_path: pathlib.Path
    ) -> None:
        sandbox.files.write(f"{place}/tree/a", "x" * 100_000)
        with pytest.raises(FileMissing):
            sandbox.files.download(f"{place}/missing", tmp_path / "out")
        with pytest.raises(FileError):
            sandbox.files.download(f"{place}/tree", tmp_path / "out", max_size=1000)
        with pytest.raises(FileError):
            sandbox.files.download(f"{place}/tree/a", tmp_path / "out", max_size=1000)
        assert os.listdir(tmp_path) == []
        sandbox.files.download(f"{place}/tree", tmp_path / "out")
        assert _content(tmp_path / "out") == {"a": b"x" * 100_000}

    def test_an_upload_of_what_is_missing_is_an_error(self, sandbox: Sandbox, place: str) -> None:
        with pytest.raises(FileMissing):
            sandbox.files.upload("/no/such/file", f"{place}/file")
        assert sandbox.files.list(place) == []

    @needs(Capability.COMMANDS)
    def test_a_download_follows_no_link_out(self, sandbox: Sandbox, place: str, tmp_path: pathlib.Path) -> None:
        (tmp_path / "victim").write_text("untouched")
        sandbox.files.write(f"{place}/tree/plain", "x")
        sandbox.run(["ln", "-s", str(tmp_path / "victim"), "tree/link"], workdir=place, check=True)
        moved = sandbox.files.download(f"{place}/tree", tmp_path / "out")
        assert moved.skipped == ("link",)
        assert _content(tmp_path / "out") == {"plain": b"x"}
        assert (tmp_path / "victim").read_text() == "untouched"

    @needs(Capability.COMMANDS, Capability.WATCH)
    def test_a_watch_tells_what_changes(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/old", "x")
        top = sandbox.files.info(place).path
        with sandbox.files.watch(place) as watch:
            sandbox.run("echo y >> old; touch new; mv new newer; rm old", workdir=place, check=True)
            wanted = {
                ("modified", f"{top}/old"),
                ("created", f"{top}/new"),
                ("moved", f"{top}/new"),
                ("created", f"{top}/newer"),
                ("removed", f"{top}/old"),
            }
            _read_all(watch, wanted)

    @needs(Capability.COMMANDS, Capability.WATCH)
    def test_a_watch_goes_into_new_directories(self, sandbox: Sandbox, place: str) -> None:
        top = sandbox.files.info(place).path
        with sandbox.files.watch(place) as watch:
            sandbox.files.write(f"{place}/a/b/c/file", "x")
            _read_all(watch, {("created", f"{top}/a"), ("created", f"{top}/a/b/c/file")})
        with sandbox.files.watch(place, recursive=False) as watch:
            sandbox.run("touch a/b/unseen; touch seen", workdir=place, check=True)
            event = watch.read(PATIENCE)
            assert event is not None
            assert event.path in (f"{top}/a", f"{top}/seen")

    @needs(Capability.COMMANDS, Capability.WATCH)
    def test_a_watch_waits_and_is_closed(self, sandbox: Sandbox, place: str) -> None:
        with sandbox.files.watch(place) as watch:
            with pytest.raises(TimedOut):
                watch.read(timeout=0.1)
            closer = threading.Timer(0.2, watch.close)
            closer.start()
            assert list(watch) == []
            closer.join()
        with pytest.raises(FileMissing):
            sandbox.files.watch(f"{place}/missing")


def _tree(root: pathlib.Path) -> pathlib.Path:
    (root / "sub dir").mkdir(parents=True)
    (root / "empty").mkdir()
    for number in range(20):
        (root / "sub dir" / str(number)).write_text(str(number))
    (root / "sub dir" / "link").symlink_to("7")
    (root / "run.sh").write_text("#!/bin/sh\necho runs")
    (root / "run.sh").chmod(0o755)
    (root / "nothing").write_bytes(b"")
    (root / "large").write_bytes(b"x" * 300_000)
    (root / os.fsdecode(b"caf\xe9")).write_bytes(b"\xff")
    return root


def _content(root: pathlib.Path) -> Tree:
    """Each path with its content, the target of its link, or None for a directory."""
    found: Tree = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def _read_all(watch: Watch, wanted: set[tuple[str, str]]) -> None:
    missing = set(wanted)
    while missing:
        event = watch.read(PATIENCE)
        assert event is not None
        missing.discard((event.type, event.path))
