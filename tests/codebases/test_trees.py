"""Every tree that a file system can hold comes through, and only what changed is read."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading

import pytest
from hypothesis import given, strategies as st
from tests import thorough

from atoll import FileError
from atoll.codebases import blobs as blobs_module, intake, tidying
from atoll.codebases.shelf import Shelf

from .looking import blobs, check_store, current, tree_of

NAMES = st.one_of(
    st.binary(min_size=1, max_size=255).map(lambda name: name.replace(b"\0", b"0").replace(b"/", b"1")),
    st.sampled_from([b"a", b"b", b"a.", b"a b", b"new\nline", b"\xff\xfe", b"-rf", b".git", b".wh.x", b"x" * 255]),
).filter(lambda name: name not in (b".", b".."))
TIMES = st.integers(0, 2**33).map(lambda seconds: seconds * 10**9 + 123_456_789)
FILES = st.tuples(st.just("file"), st.binary(max_size=40), st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o777]), TIMES)
LINKS = st.tuples(
    st.just("link"), st.sampled_from([b"a", b"../..", b"/etc/passwd", b"\xff", b"no\nwhere"]), st.none(), TIMES
)
TREES = st.recursive(
    st.dictionaries(NAMES, FILES | LINKS, max_size=4),
    lambda below: st.dictionaries(NAMES, FILES | LINKS | below, max_size=4),
    max_leaves=12,
)


def plant(root, tree):
    """Make a tree in a directory that is empty, or has become so."""
    for name, value in tree.items():
        path = os.path.join(root, name)
        if isinstance(value, dict):
            os.mkdir(path)
            plant(path, value)
            continue
        kind, content, mode, time = value
        if kind == "link":
            os.symlink(content, path)
        else:
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)
        os.utime(path, ns=(time, time), follow_symlinks=False)


@pytest.fixture(scope="module")
def place():
    path = tempfile.mkdtemp(prefix="ct-", dir="/tmp")
    yield path
    shutil.rmtree(path)


@thorough.examples(60, 25)
@given(trees=st.lists(TREES, min_size=1, max_size=3))
def test_what_is_downloaded_is_what_was_uploaded(place, trees):
    shelf = Shelf(place)
    root = tempfile.mkdtemp(dir=place)
    source, target = os.fsencode(f"{root}/source"), f"{root}/target"
    made = shelf.create(f"c{os.path.basename(root)}")
    before = {}
    for number, tree in enumerate(trees):
        os.mkdir(source)
        plant(source, tree)
        wanted = tree_of(source)
        done = shelf.upload(made, os.fsdecode(source))
        shelf.download(made, f"{target}{number}")
        assert done.added + done.changed + done.unchanged == len(wanted)
        assert done.removed == len(before.keys() - wanted.keys())
        found = tree_of(f"{target}{number}")
        # What is like before keeps its time; all else is to the letter.
        assert _timeless(found) == _timeless(wanted)
        if number == 0:
            assert found == wanted
        before = wanted
        shutil.rmtree(source)
    shelf.delete(made)
    shutil.rmtree(root)
    check_store(place)


def _timeless(tree):
    return {path: (kind, mode, content) for path, (kind, mode, _, content) in tree.items()}


def test_a_very_deep_tree_comes_through(codebases, shelf, tmp_path):
    depth = 1500
    root = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("deep", dir_fd=root)
    fd = os.open("deep", os.O_RDONLY, dir_fd=root)
    for _ in range(depth):
        os.mkdir("directory", dir_fd=fd)
        below = os.open("directory", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, 0o640, dir_fd=fd))
    os.close(fd)
    os.close(root)
    made = codebases.create("deep", tmp_path / "deep")
    assert made.files == 1
    codebases.download("deep", tmp_path / "out")
    from atoll.codebases.walking import walk

    for place in (current(shelf, "deep"), tmp_path / "out"):
        fd = os.open(place, os.O_RDONLY)
        found = walk(fd)
        os.close(fd)
        assert list(found.stamps) == ["directory/" * depth + "bottom"]
        assert len(found.entries) == depth
    from atoll.engine.removal import remove_tree

    for name in ("deep", "out"):
        remove_tree(str(tmp_path / name))
    codebases.delete("deep")


def test_a_large_file_comes_through_and_its_holes_stay_holes(codebases, shelf, source, same):
    with open(source / "large", "wb") as file:
        file.write(b"begin")
        file.seek(300 << 20)
        file.write(b"end")
    made = codebases.create("project", source)
    assert made.size > 300 << 20
    stored = os.stat(f"{current(shelf, 'project')}/large")
    assert stored.st_size == (300 << 20) + 3
    assert stored.st_blocks * 512 < 8 << 20
    assert codebases.read("project", "large").rstrip(b"\0")[:5] == b"begin"


def reads_of(monkeypatch):
    """The paths that are read from now on."""
    seen, real = [], intake._read

    def read(source, directory, path, *rest):
        seen.append(path)
        return real(source, directory, path, *rest)

    monkeypatch.setattr(intake, "_read", read)
    return seen


@pytest.fixture
def settled(source):
    """A source whose files were not written just now."""
    import time

    newest = max(
        os.lstat(os.path.join(place, name)).st_ctime_ns for place, _, names in os.walk(source) for name in names
    )
    while time.time_ns() < newest + 300_000_000:
        time.sleep(0.01)  # the clock itself is what is waited for
    return source


def test_only_files_that_look_different_are_read_again(codebases, settled, monkeypatch):
    codebases.create("project", settled)
    seen = reads_of(monkeypatch)
    assert codebases.upload("project", settled).version == 1
    assert seen == []
    (settled / "readme.md").write_text("other\n")
    codebases.upload("project", settled)
    assert seen == ["readme.md"]
    codebases.create("another", settled)
    assert seen == ["readme.md", "readme.md"], "what was written just now is looked at again, and nothing else"


def test_a_file_of_the_same_size_and_time_is_read_when_another_stamp_moved(codebases, settled, monkeypatch):
    codebases.create("project", settled)
    before = (settled / "readme.md").stat()
    (settled / "readme.md").write_text("HELLO\n")
    os.utime(settled / "readme.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert codebases.upload("project", settled).changed == 1
    assert codebases.read("project", "readme.md") == b"HELLO\n"


def test_a_file_written_within_the_same_tick_is_seen(codebases, source):
    codebases.create("project", source)
    for number in range(40):
        (source / "readme.md").write_text(f"{number:03}")
        codebases.upload("project", source)
        assert codebases.read("project", "readme.md") == b"%03d" % number


def test_a_memory_that_cannot_be_read_is_no_error(codebases, settled, home):
    codebases.create("project", settled)
    (memory,) = (home / "codebases" / "remembered").iterdir()
    for broken in (b"", b"[]", b'{"format": 1}', b"\xff", memory.read_bytes()[:-20]):
        memory.write_bytes(broken)
        assert codebases.upload("project", settled).version == 1


def test_a_file_that_keeps_changing_is_named(codebases, source, monkeypatch):
    """Somebody writes to it each time that it has been read."""
    real = blobs_module._all_of

    def read_and_touch(fd, size):
        data = real(fd, size)
        if data.startswith(b"hello"):
            with open(source / "readme.md", "a", encoding="utf-8") as file:
                file.write("x")
        return data

    monkeypatch.setattr(blobs_module, "_all_of", read_and_touch)
    with pytest.raises(FileError, match=r"readme\.md changes while it is read"):
        codebases.create("project", source)
    assert codebases.list() == []


def test_a_file_that_changes_once_while_it_is_read_is_read_again(codebases, source, monkeypatch):
    real, done = blobs_module._all_of, []

    def read_and_touch(fd, size):
        data = real(fd, size)
        if not done and data.startswith(b"hello"):
            done.append(True)
            with open(source / "readme.md", "a", encoding="utf-8") as file:
                file.write("x")
        return data

    monkeypatch.setattr(blobs_module, "_all_of", read_and_touch)
    codebases.create("project", source)
    assert done
    assert codebases.read("project", "readme.md") == b"hello\nx"


def test_a_tree_that_changes_while_it_is_uploaded_gives_files_that_once_were(codebases, tmp_path):
    source = tmp_path / "busy"
    source.mkdir()
    over = threading.Event()

    def churn():
        number = 0
        while not over.is_set():
            number += 1
            path = source / f"f{number % 20}"
            (source / "new").write_text(f"{number}" * 100)
            os.replace(source / "new", path)
            if number % 3 == 0:
                path.unlink()
            if number % 50 == 0:
                shutil.rmtree(source / "sub", ignore_errors=True)
                (source / "sub").mkdir()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        codebases.create("busy", source)
        for _ in range(20):
            codebases.upload("busy", source)
            for info in codebases.files("busy"):
                if info.type == "file" and info.path != "new":
                    content = codebases.read("busy", info.path).decode()
                    assert content == content[: len(content) // 100] * 100
    finally:
        over.set()
        thread.join()


def test_where_a_file_has_all_the_links_it_can_have_a_new_one_is_made(
    codebases, shelf, source, home, monkeypatch, same
):
    import errno

    real, refused = os.link, []

    def full_once(path, name, **keywords):
        if not refused and "readme" in name:
            refused.append(path)
            raise OSError(errno.EMLINK, "Too many links", path)
        real(path, name, **keywords)

    codebases.create("project", source)
    inode = os.stat(f"{current(shelf, 'project')}/readme.md").st_ino
    use = shelf.use("project")
    monkeypatch.setattr(os, "link", full_once)
    codebases.write("project", "x", b"x")
    assert refused
    assert os.stat(f"{current(shelf, 'project')}/readme.md").st_ino != inode
    assert os.stat(f"{use.tree}/readme.md").st_ino == inode
    os.close(use.descriptor)
    (source / "x").write_text("x")
    assert same("project", source, times=False)
    tidying.collect(shelf.home)
    check_store(home)


def test_where_there_are_no_hard_links_files_are_copied(codebases, source, home, monkeypatch, same):
    import errno

    def no_links(path, name, **keywords):
        raise OSError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(os, "link", no_links)
    codebases.create("project", source)
    assert same("project", source)
    tidying.collect(Shelf().home)
    assert blobs(home) == []
    (source / "readme.md").write_text("other")
    codebases.upload("project", source)
    assert same("project", source, times=False)
