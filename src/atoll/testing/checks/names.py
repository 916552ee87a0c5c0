"""Paths that are hard to write, lead in circles, or want to lead out."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from ...errors import FileError, FileMissing, InvalidInput, InvalidPath
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks
from ..needs import needs

AWKWARD = ["two words", "it's", 'a "quote"', "line\nbreak", "-n", "*", "$HOME", "naïve ☃", "\\", "..."]


class NameChecks(Checks):
    """Names and paths."""

    @needs(Capability.COMMANDS)
    def test_awkward_names_are_names(self, sandbox: Sandbox, place: str) -> None:
        for name in AWKWARD:
            sandbox.files.write(f"{place}/{name}", name)
        assert sorted(info.name for info in sandbox.files.list(place)) == sorted(AWKWARD)
        for name in AWKWARD:
            assert sandbox.files.read(f"{place}/{name}") == name
            assert sandbox.run(["cat", "--", name], workdir=place).stdout == name
            sandbox.files.remove(f"{place}/{name}")
        assert sandbox.files.list(place) == []

    @needs(Capability.COMMANDS)
    def test_names_need_not_be_utf_8(self, sandbox: Sandbox, place: str) -> None:
        name = os.fsdecode(b"caf\xe9\xff")
        sandbox.files.write(f"{place}/{name}", "latin")
        assert sandbox.run(["cat", name], workdir=place).stdout == "latin"
        sandbox.run(["mkdir", b"dir\xfe"], workdir=place, check=True)
        names = {info.name for info in sandbox.files.list(place)}
        assert names == {name, os.fsdecode(b"dir\xfe")}
        assert [hit.path.rpartition("/")[2] for hit in sandbox.files.search("caf*", path=place)] == [name]
        assert sandbox.files.read(f"{place}/{name}") == "latin"

    def test_long_paths_work_and_longer_ones_are_refused(self, sandbox: Sandbox, place: str) -> None:
        long = "/".join([place, *["d" * 250] * 14, "file"])
        sandbox.files.write(long, "deep")
        assert sandbox.files.read(long) == "deep"
        sandbox.files.remove(f"{place}/{'d' * 250}", recursive=True)
        assert sandbox.files.list(place) == []
        for path in (f"{place}/{'x' * 256}", "x/" * 2048 + "x"):
            with pytest.raises(InvalidPath):
                sandbox.files.write(path, "x")
            with pytest.raises(InvalidPath):
                sandbox.files.exists(path)

    def test_what_cannot_be_a_path_is_refused(self, sandbox: Sandbox) -> None:
        for path in ("", "a\0b", "\ud800"):
            with pytest.raises(InvalidPath):
                sandbox.files.read(path)
        with pytest.raises(InvalidInput):
            sandbox.files.read(b"bytes")  # type: ignore[arg-type]  # the point of the test
        assert not sandbox.files.exists(pathlib.PurePosixPath("no/such"))

    @needs(Capability.COMMANDS)
    def test_links_that_lead_in_circles_are_an_error(self, sandbox: Sandbox, place: str) -> None:
        sandbox.run("ln -s b a; ln -s a b; ln -s . here; echo x > file", workdir=place, check=True)
        for call in (sandbox.files.read, sandbox.files.info, sandbox.files.list):
            with pytest.raises(FileError) as caught:
                call(f"{place}/a")
            assert caught.value.errno == errno.ELOOP
        assert sandbox.files.info(f"{place}/a", follow=False).target == "b"
        assert sandbox.files.read(f"{place}/here/here/here/file") == "x\n"
        assert len(sandbox.files.list(place, recursive=True)) == 4

    @needs(Capability.COMMANDS)
    def test_no_path_leads_out(self, sandbox: Sandbox, place: str, tmp_path: pathlib.Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("the host's")
        sandbox.files.write(f"{place}/inside", "inside")
        above = "../" * 40
        sandbox.run(["ln", "-s", str(secret), "absolute"], workdir=place, check=True)
        sandbox.run(["ln", "-s", f"{above}{str(secret)[1:]}", "relative"], workdir=place, check=True)
        for path in (str(secret), f"{above}{secret}", f"{place}/absolute", f"{place}/relative"):
            assert not sandbox.files.exists(path)
            with pytest.raises(FileMissing):
                sandbox.files.read(path)
        top = sandbox.files.info(place).path
        assert sandbox.files.read(f"{above}{top[1:]}/inside") == "inside"

    @needs(Capability.COMMANDS)
    def test_nothing_is_written_outside(self, sandbox: Sandbox, place: str, tmp_path: pathlib.Path) -> None:
        target = tmp_path / "target"
        target.write_text("untouched")
        sandbox.run(["ln", "-s", str(tmp_path), "out"], workdir=place, check=True)
        for path in (str(target), f"{place}/out/target", f"{'../' * 40}{str(target)[1:]}"):
            try:
                sandbox.files.write(path, "changed")
            except FileError:
                continue  # as good as a file of the same name inside
        assert target.read_text() == "untouched"
        assert os.listdir(tmp_path) == ["target"]

    @needs(Capability.COMMANDS)
    def test_no_magic_link_leads_anywhere(self, sandbox: Sandbox, place: str) -> None:
        sandbox.run("ln -s /proc/self/root/etc out; ln -s /proc/1/root root", workdir=place, check=True)
        for path in ("/proc/self/root/etc/passwd", f"{place}/out/passwd", f"{place}/root/etc/passwd"):
            with pytest.raises(FileError):
                sandbox.files.read(path)
