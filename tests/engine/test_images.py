"""image= archives: unpacked once, by a process that can write nowhere else."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from atoll.engine.images import unpacked
from atoll.errors import InvalidInput


def archive(path, members):
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def entry(name, kind=tarfile.REGTYPE, mode=0o644, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, link
    return info


GOOD = [(entry("usr", tarfile.DIRTYPE, 0o755), b""), (entry("usr/tool", mode=0o755), b"#!/bin/sh\n")]


def test_an_archive_is_unpacked_once(tmp_path):
    home = str(tmp_path / "home")
    path = archive(tmp_path / "root.tar", GOOD)
    first = unpacked(path, home)
    assert (os.stat(f"{first}/usr/tool").st_mode & 0o777) == 0o755
    assert unpacked(path, home) == first
    assert len(os.listdir(f"{home}/jail/images")) == 1


def test_a_directory_is_taken_as_it_is(tmp_path):
    (tmp_path / "usr").mkdir()
    assert unpacked(str(tmp_path), str(tmp_path / "home")) == os.path.realpath(tmp_path)


@pytest.mark.parametrize(
    "evil",
    [
        [(entry("../outside"), b"evil")],
        [(entry("usr/up", tarfile.SYMTYPE, link="../../.."), b""), (entry("usr/up/outside"), b"evil")],
        [(entry("usr/abs", tarfile.SYMTYPE, link="PLACE"), b""), (entry("usr/abs/outside"), b"evil")],
    ],
    ids=["dots", "relative link", "absolute link"],
)
def test_nothing_is_written_outside(tmp_path, evil):
    for info, _ in evil:
        info.linkname = info.linkname.replace("PLACE", str(tmp_path))
    path = archive(tmp_path / "root.tar", [*GOOD, *evil])
    with pytest.raises(InvalidInput, match="cannot be unpacked"):
        unpacked(path, str(tmp_path / "home"))
    assert not list(tmp_path.rglob("outside"))
    assert os.listdir(tmp_path / "home/jail/images") == []


def test_devices_and_set_uid_bits_are_left_out(tmp_path):
    members = [*GOOD, (entry("usr/su", mode=0o4755), b"x"), (entry("usr/null", tarfile.CHRTYPE), b"")]
    root = unpacked(archive(tmp_path / "root.tar", members), str(tmp_path / "home"))
    assert os.stat(f"{root}/usr/su").st_mode & 0o7000 == 0
    assert not os.path.lexists(f"{root}/usr/null")


def test_what_is_no_image_is_said(tmp_path):
    with pytest.raises(InvalidInput, match="neither a directory nor"):
        unpacked(str(tmp_path / "missing"), str(tmp_path))
    (tmp_path / "text").write_text("not a tar")
    with pytest.raises(InvalidInput, match="cannot be unpacked"):
        unpacked(str(tmp_path / "text"), str(tmp_path))
    with pytest.raises(InvalidInput, match="neither /usr nor /bin"):
        unpacked(archive(tmp_path / "empty.tar", [(entry("file"), b"")]), str(tmp_path))
