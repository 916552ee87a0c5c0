"""Opening by steps finds what `openat2` finds and refuses what it refuses, also while somebody moves directories."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from atoll.guest import beneath, paths, stepping
from atoll.guest.beneath import BENEATH, IN_ROOT, NO_SYMLINKS

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "root"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "file").write_text("inside")
    (top / "secret").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    for name, target in {
        "relative": "a/file",
        "absolute": "/a/file",
        "up": "../../../../secret",
        "out": str(tmp_path / "secret"),
        "directory": "a",
        "a/back": "..",
        "loop": "loop",
        "dangling": "nothing",
        "made": "a/new",
        "magic": "/proc/self/root/etc/passwd",
        "slash": "a/",
        "a/b/deep": "../../relative",
    }.items():
        (top / name).symlink_to(target)
    fd = os.open(top, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


PATHS = """
a a/ a/. a/.. a/../.. ../../secret / . .. /a/file a/file a/file/ a/file/x a/b/../file //a///file nothing nothing/x
relative absolute up out directory directory/file directory/ a/back a/back/a/file loop dangling dangling/ slash
slash/file a/b/deep a/back/../secret relative/ directory/..
""".split()  # noqa: SIM905 - one below the other they are a page
FLAGS = {
    "read": os.O_RDONLY,
    "path": os.O_PATH,
    "link": os.O_PATH | os.O_NOFOLLOW,
    "read no link": os.O_RDONLY | os.O_NOFOLLOW,
    "directory": DIRECTORY,
    "write": os.O_WRONLY,
}


def outcome(call):
    """Which file was found, or the error."""
    try:
        fd = call()
    except OSError as error:
        return errno.errorcode[error.errno]
    try:
        found = os.fstat(fd)
        return found.st_dev, found.st_ino
    finally:
        os.close(fd)


@pytest.mark.parametrize("resolve", [IN_ROOT, BENEATH, BENEATH | NO_SYMLINKS], ids=["in root", "beneath", "no links"])
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_it_agrees_with_the_kernel(root, flags, resolve):
    assert paths._by_steps == []
    for path in map(os.fsencode, PATHS):
        kernel = outcome(lambda path=path: paths.open_below(root, path, flags, 0, resolve))
        steps = outcome(lambda path=path: paths._open_by_steps(root, path, flags, 0, resolve))
        assert steps == kernel, (path, flags)


@pytest.mark.parametrize("path", [b"new", b"a/new", b"dangling", b"made", b"nothing/new", b"a", b"relative"])
@pytest.mark.parametrize("exclusive", [0, os.O_EXCL])
def test_it_makes_files_where_the_kernel_does(root, path, exclusive):
    flags = os.O_WRONLY | os.O_CREAT | exclusive
    before = outcome(lambda: paths.open_below(root, path, flags, 0o600, IN_ROOT))
    if not isinstance(before, str):
        if exclusive or path not in (b"relative", b"a"):
            os.unlink({b"made": b"a/new", b"dangling": b"nothing"}.get(path, path), dir_fd=root)
        steps = outcome(lambda: stepping.open_by_steps(root, path, flags, 0o600, in_root=True))
        assert not isinstance(steps, str)
    else:
        assert outcome(lambda: stepping.open_by_steps(root, path, flags, 0o600, in_root=True)) == before


def test_no_magic_link_is_followed(root):
    start = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        for path in (b"/proc/self/root/etc/passwd", b"/proc/self/cwd", b"/proc/self/exe", b"/proc/self/fd/0"):
            assert (
                outcome(lambda path=path: stepping.open_by_steps(start, path, os.O_RDONLY, 0, in_root=True)) == "ELOOP"
            )
        assert not isinstance(
            outcome(lambda: stepping.open_by_steps(start, b"/proc/self/stat", 0, 0, in_root=True)), str
        )
    finally:
        os.close(start)


def test_who_moves_directories_meanwhile_moves_nobody_out(root, tmp_path):
    """The way leads down and up again; in between the directory is moved out of the root, and back."""
    os.makedirs(tmp_path / "root" / "x" / "y" / "z")
    (tmp_path / "elsewhere").mkdir()
    done = threading.Event()

    def move():
        while not done.is_set():
            os.rename(tmp_path / "root" / "x" / "y", tmp_path / "elsewhere" / "y")
            os.rename(tmp_path / "elsewhere" / "y", tmp_path / "root" / "x" / "y")

    mover = threading.Thread(target=move)
    mover.start()
    inside = os.stat(tmp_path / "root" / "secret").st_ino
    seen = set()
    try:
        for _ in range(2000):
            seen.add(
                outcome(lambda: stepping.open_by_steps(root, b"x/y/z/../../../secret", os.O_RDONLY, 0, in_root=True))
            )
    finally:
        done.set()
        mover.join()
    assert {each if isinstance(each, str) else each[1] for each in seen} <= {inside, "ENOENT"}
    assert inside in {each[1] for each in seen if not isinstance(each, str)}


def test_a_guest_without_openat2_uses_it(root, monkeypatch):
    monkeypatch.setattr(beneath, "_OPENAT2", 999)
    monkeypatch.setattr(paths, "_by_steps", [])
    os.close(paths.open_below(root, b"absolute", os.O_RDONLY, 0, IN_ROOT))
    assert paths._by_steps == [True]
