"""Copies of trees that hostile code made."""

from __future__ import annotations

import errno
import os
import socket
import stat

import pytest

from atoll.engine.copying import copy_tree
from atoll.engine.removal import remove_tree

DEPTH = 3000
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.mkdir()
    yield path
    remove_tree(str(path))


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target"
    yield path
    if path.exists():
        remove_tree(str(path))


def test_files_come_with_content_mode_times_and_attributes(source, target):
    (source / "d").mkdir()
    (source / "d" / "f").write_text("content")
    (source / b"\xff odd\n name".decode(errors="surrogateescape")).write_text("odd")
    os.setxattr(source / "d" / "f", "user.word", b"kept")
    os.chmod(source / "d" / "f", 0o4751)
    os.utime(source / "d" / "f", ns=(1_000_000_001, 2_000_000_002))
    os.chmod(source / "d", 0o2711)
    os.utime(source / "d", ns=(3_000_000_003, 4_000_000_004))
    assert copy_tree(str(source), str(target)) > 0
    status = os.stat(target / "d" / "f")
    assert (target / "d" / "f").read_text() == "content"
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o751, 2_000_000_002), "without the set-uid bit"
    assert os.getxattr(target / "d" / "f", "user.word") == b"kept"
    assert (stat.S_IMODE(os.stat(target / "d").st_mode), os.stat(target / "d").st_mtime_ns) == (0o2711, 4_000_000_004)
    assert sorted(os.listdir(os.fsencode(target))) == sorted(os.listdir(os.fsencode(source)))
    (target / "d" / "f").write_text("changed")
    assert (source / "d" / "f").read_text() == "content"


def test_links_are_copied_and_never_followed(source, target, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("of the host")
    (source / "file").symlink_to(secret / "key")
    (source / "directory").symlink_to(secret)
    (source / "loop").symlink_to("loop")
    copy_tree(str(source), str(target))
    assert os.readlink(target / "file") == str(secret / "key")
    assert os.readlink(target / "directory") == str(secret)
    assert sorted(os.listdir(target)) == ["directory", "file", "loop"]
    assert all(os.path.islink(target / name) for name in os.listdir(target))


def test_a_root_that_is_a_link_is_refused(source, target, tmp_path):
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(NotADirectoryError):
        copy_tree(str(tmp_path / "link"), str(target))


def test_names_of_one_file_stay_so(source, target):
    (source / "one").write_text("same")
    (source / "d").mkdir()
    os.link(source / "one", source / "d" / "two")
    copy_tree(str(source), str(target))
    assert os.path.samefile(target / "one", target / "d" / "two")
    assert os.stat(target / "one").st_nlink == 2
    assert not os.path.samefile(target / "one", source / "one")
    assert sorted(os.listdir(target.parent)) == ["source", "target"]


def test_holes_stay_holes(source, target):
    with open(source / "sparse", "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 30)
        file.write(b"in the middle")
    taken = copy_tree(str(source), str(target))
    status = os.stat(target / "sparse")
    assert status.st_size == 1 << 40
    assert status.st_blocks * 512 < 1 << 20
    assert taken < 1 << 20
    with open(target / "sparse", "rb") as file:
        file.seek(1 << 30)
        assert file.read(13) == b"in the middle"


def test_pipes_and_sockets_are_made_anew_and_hold_nobody_up(source, target):
    os.mkfifo(source / "pipe", 0o640)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(source / "socket"))
    copy_tree(str(source), str(target))
    assert stat.S_ISFIFO(os.lstat(target / "pipe").st_mode)
    assert stat.S_IMODE(os.lstat(target / "pipe").st_mode) == 0o640
    assert stat.S_ISSOCK(os.lstat(target / "socket").st_mode)


def test_what_overlayfs_writes_down_is_kept(source, target):
    os.mknod(source / "removed", stat.S_IFCHR, os.makedev(0, 0))
    (source / "opaque").mkdir()
    name = "trusted.overlay.opaque" if os.geteuid() == 0 else "user.overlay.opaque"
    os.setxattr(source / "opaque", name, b"y")
    copy_tree(str(source), str(target))
    removed = os.lstat(target / "removed")
    assert (stat.S_ISCHR(removed.st_mode), removed.st_rdev) == (True, 0)
    assert os.getxattr(target / "opaque", name) == b"y"


def test_any_depth_is_copied_with_few_descriptors(source, target):
    """A path of this depth is far beyond what one call takes, and a descriptor for each would be too many."""
    current = os.open(source, DIRECTORY)
    for _ in range(DEPTH):
        os.mkdir("x", dir_fd=current)
        below = os.open("x", DIRECTORY, dir_fd=current)
        os.close(current)
        current = below
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)
    copy_tree(str(source), str(target))
    current, depth = os.open(target, DIRECTORY), 0
    while (names := os.listdir(current)) == ["x"]:
        below = os.open("x", DIRECTORY, dir_fd=current)
        os.close(current)
        current, depth = below, depth + 1
    os.close(current)
    assert (names, depth) == (["end"], DEPTH)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_one_become_those_of_another(source, target):
    for name, owner in (("of-it", 70001), ("of-root", 0)):
        (source / name).write_text("")
        os.chown(source / name, owner, owner)
    os.symlink("x", source / "link")
    os.chown(source / "link", 70001, 70001, follow_symlinks=False)
    copy_tree(str(source), str(target), {70001: 70002})
    owners = {name: os.lstat(target / name).st_uid for name in os.listdir(target)}
    assert owners == {"of-it": 70002, "of-root": 0, "link": 70002}


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to make a device")
def test_no_device_comes_along(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    os.mknod(source / "disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    os.mknod(source / "memory", stat.S_IFCHR | 0o666, os.makedev(1, 1))
    os.mknod(source / "removed", stat.S_IFCHR, os.makedev(0, 0))
    os.mkfifo(source / "pipe")
    copy_tree(str(source), str(target))
    assert sorted(os.listdir(target)) == ["pipe", "removed"]


def test_a_hole_stays_one_on_another_file_system(tmp_path, monkeypatch):
    """Where the kernel copies nothing by itself. Zeros in its place would let a small disk fill the host's."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with open(source / "hole", "wb") as file:
        file.truncate(256 << 20)
        for place in (0, 100 << 20, (256 << 20) - 3):
            file.seek(place)
            file.write(b"end")
    assert os.stat(source / "hole").st_blocks * 512 < 1 << 20

    def refuse(*_):
        raise OSError(errno.EXDEV, "another device")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    copy_tree(str(source), str(target))
    monkeypatch.undo()
    assert (target / "hole").read_bytes() == (source / "hole").read_bytes()
    assert os.stat(target / "hole").st_blocks * 512 < 1 << 20
