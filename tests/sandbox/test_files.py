from __future__ import annotations

import errno
import io
from pathlib import PurePosixPath

import pytest

from atoll import (
    FileError,
    FileMissing,
    FilePresent,
    InvalidInput,
    InvalidPath,
    IsDirectory,
    NotDirectory,
    NotEmpty,
)


@pytest.fixture
def files(sandbox):
    sandbox.run("rm -rf -- * .[!.]*")
    return sandbox.files


def test_text_and_bytes_come_back_as_they_went(files):
    assert files.write("a.txt", "grüße\r\n") == 9
    assert files.read("a.txt") == "grüße\r\n"
    assert files.read_bytes("a.txt") == "grüße\r\n".encode()
    assert files.write(PurePosixPath("b"), bytes(range(256))) == 256
    assert files.read_bytes("b") == bytes(range(256))
    assert files.write("empty", b"") == 0
    assert files.read("empty") == ""


def test_a_large_file_passes_both_ways(files):
    data = b"0123456789abcdef" * (1 << 18)
    assert files.write("large", io.BytesIO(data)) == len(data) == 4 << 20
    assert files.read_bytes("large") == data
    assert files.write("large", data) == len(data)
    assert files.read_bytes("large") == data


def test_a_part_of_a_file_is_read(files):
    files.write("x", "0123456789")
    assert files.read_bytes("x", offset=3, size=4) == b"3456"
    assert files.read_bytes("x", offset=8) == b"89"
    assert files.read_bytes("x", offset=20) == b""
    assert files.read_bytes("x", size=0) == b""


def test_more_than_max_size_is_refused_and_the_hint_is_download(files, sandbox):
    files.write("x", b"a" * 300_000)
    with pytest.raises(FileError, match="use download") as caught:
        files.read_bytes("x", max_size=200_000)
    assert caught.value.errno == errno.EFBIG
    assert len(files.read("x", max_size=300_000)) == 300_000
    with pytest.raises(FileError):
        files.read_bytes("/dev/zero", max_size=1000)


def test_what_is_not_text_is_refused_by_read_and_given_by_read_bytes(files):
    files.write("x", b"ok\xff")
    with pytest.raises(FileError, match=r"not UTF-8 text \(byte 2\); use read_bytes"):
        files.read("x")
    assert files.read_bytes("x") == b"ok\xff"


def test_writing_can_append_and_set_a_mode_and_makes_directories(files):
    files.write("d/e/log", "one", mode=0o640)
    files.write("d/e/log", "two", append=True)
    assert files.read("d/e/log") == "onetwo"
    assert files.info("d/e/log").mode == 0o640
    with pytest.raises(FileMissing):
        files.write("no/such/x", "", parents=False)


def test_the_old_content_stays_until_the_new_is_whole(files):
    files.write("x", "old")

    def breaks():
        yield b"n" * 400_000
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        files.write("x", breaks())
    assert files.read("x") == "old"
    assert [entry.name for entry in files.list()] == ["x"]


def test_listing_gives_entries_and_with_recursive_all_below(files, sandbox):
    files.write("a/b/c", "xyz")
    sandbox.run("ln -s /nowhere a/link; ln -s .. a/b/up")
    assert [(entry.name, entry.type) for entry in files.list()] == [("a", "directory")]
    found = {entry.path: entry for entry in files.list(recursive=True)}
    assert set(found) == {f"/workspace/a{rest}" for rest in ("", "/b", "/b/c", "/b/up", "/link")}
    assert (found["/workspace/a/b/c"].size, found["/workspace/a/b/c"].type) == (3, "file")
    assert (found["/workspace/a/link"].type, found["/workspace/a/link"].target) == ("symlink", "/nowhere")
    assert files.list("/workspace/a/b") == [
        entry for path, entry in found.items() if path.startswith("/workspace/a/b/")
    ]


def test_a_listing_of_thousands_comes_whole(files, sandbox):
    sandbox.run("mkdir many; cd many; seq 1 5000 | xargs touch")
    assert sorted(int(entry.name) for entry in files.list("many")) == list(range(1, 5001))


def test_info_follows_links_unless_told_not_to(files, sandbox):
    files.write("x", "abc")
    sandbox.run("ln -s x link; ln -s nowhere dangling; ln -s loop loop")
    assert (files.info("link").type, files.info("link").size) == ("file", 3)
    assert (files.info("link", follow=False).type, files.info("link", follow=False).target) == ("symlink", "x")
    assert files.info("x").modified > 1_000_000_000
    assert files.exists("link")
    assert not files.exists("dangling")
    assert not files.exists("x/below")
    with pytest.raises(FileError) as caught:
        files.exists("loop")
    assert caught.value.errno == errno.ELOOP


def test_mkdir_makes_parents_and_minds_what_is_there(files):
    files.mkdir("a/b/c", mode=0o750)
    files.mkdir("a/b/c")
    assert files.info("a/b/c").mode == 0o750
    with pytest.raises(FilePresent):
        files.mkdir("a", exist_ok=False)
    with pytest.raises(FileMissing):
        files.mkdir("x/y", parents=False)
    files.write("f", "")
    with pytest.raises((FilePresent, NotDirectory)):
        files.mkdir("f")


def test_remove_takes_files_and_empty_directories_and_trees_when_asked(files):
    files.write("d/e/x", "")
    files.remove("d/e/x")
    files.remove("d/e")
    files.write("d/e/x", "")
    with pytest.raises(NotEmpty):
        files.remove("d")
    assert files.exists("d/e/x")
    files.remove("d", recursive=True)
    assert files.list() == []
    with pytest.raises(FileMissing):
        files.remove("d")
    files.remove("d", missing_ok=True)


def test_removing_a_link_leaves_what_it_points_to(files, sandbox):
    files.write("keep/x", "")
    sandbox.run("ln -s keep link")
    files.remove("link", recursive=True)
    assert files.exists("keep/x")
    assert not files.exists("link")


def test_move_and_copy_mind_what_is_there(files):
    files.write("a", "A")
    files.write("b", "B")
    for step in (files.move, files.copy):
        with pytest.raises(FilePresent):
            step("a", "b")
    assert files.read("b") == "B"
    files.copy("a", "b", overwrite=True)
    assert (files.read("a"), files.read("b")) == ("A", "A")
    files.move("a", "b", overwrite=True)
    assert [entry.name for entry in files.list()] == ["b"]
    with pytest.raises(FileMissing):
        files.move("a", "c")
    with pytest.raises(FileMissing):
        files.copy("a", "c")


def test_whole_trees_are_moved_and_copied(files, sandbox):
    files.write("tree/sub/x", "X")
    sandbox.run("ln -s sub tree/link; chmod 700 tree/sub; chmod 755 tree/sub/x")
    files.copy("tree", "twin")
    assert files.read("twin/sub/x") == "X"
    assert files.info("twin/sub/x").mode == 0o755
    assert files.info("twin/link", follow=False).target == "sub"
    files.move("twin", "moved")
    assert not files.exists("twin")
    assert files.read("moved/sub/x") == "X"


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (lambda files: files.read("missing"), FileMissing),
        (lambda files: files.read("."), IsDirectory),
        (lambda files: files.list("x"), NotDirectory),
        (lambda files: files.read("x/y"), NotDirectory),
        (lambda files: files.write("d", "over a directory"), IsDirectory),
        (lambda files: files.list("missing"), FileMissing),
        (lambda files: files.info("missing"), FileMissing),
    ],
)
def test_each_refusal_is_the_error_that_fits_with_its_errno_and_path(files, attempt, error):
    files.write("x", "")
    files.mkdir("d")
    with pytest.raises(error) as caught:
        attempt(files)
    assert isinstance(caught.value, OSError)
    assert caught.value.errno
    assert caught.value.path
    assert str(caught.value)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 300, "d/" * 3000, "\ud800"])
def test_a_path_that_cannot_be_is_refused(files, path):
    with pytest.raises(InvalidPath):
        files.read(path)
    with pytest.raises(InvalidPath):
        files.write(path, "")


@pytest.mark.parametrize("path", [None, 7, b"x"])
def test_what_is_no_path_is_refused(files, path):
    with pytest.raises(InvalidInput):
        files.read(path)


def test_numbers_that_cannot_be_are_refused(files):
    for attempt in (
        lambda: files.read_bytes("x", offset=-1),
        lambda: files.read_bytes("x", size="all"),
        lambda: files.read("x", max_size=0),
        lambda: files.write("x", "", mode=0o10000),
        lambda: files.search("*", limit=-1),
    ):
        with pytest.raises(InvalidInput):
            attempt()


def test_a_path_leads_nowhere_outside_of_the_root(files, sandbox):
    sandbox.run("ln -s /etc/passwd escape; ln -s ../../../../../../../etc/passwd climb")
    for path in ("escape", "climb", "../../../../../../../etc/passwd", "/etc/passwd"):
        with pytest.raises(FileMissing):
            files.read(path)


def test_search_by_name_and_by_content(files):
    files.write("src/main.py", "import os\nprint('Hello')\n")
    files.write("src/deep/util.py", "def hello(): pass\n")
    files.write("README.md", "hello\n")
    assert sorted(hit.path for hit in files.search("**/*.py")) == [
        "/workspace/src/deep/util.py",
        "/workspace/src/main.py",
    ]
    hits = files.search(content="hello")
    assert sorted((hit.path, hit.line, hit.text) for hit in hits) == [
        ("/workspace/README.md", 1, "hello"),
        ("/workspace/src/deep/util.py", 1, "def hello(): pass"),
    ]
    assert not hits.truncated
    both = files.search("**/*.py", content="HELLO", ignore_case=True)
    assert sorted((hit.path, hit.line) for hit in both) == [
        ("/workspace/src/deep/util.py", 1),
        ("/workspace/src/main.py", 2),
    ]
    assert [hit.path for hit in files.search("*.py", path="src/deep")] == ["/workspace/src/deep/util.py"]
    assert files.search("*.none") == []


def test_search_says_when_there_was_more(files, sandbox):
    sandbox.run("seq 1 50 | xargs touch")
    hits = files.search("*", limit=10)
    assert len(hits) == 10
    assert hits.truncated


def test_search_without_or_with_a_broken_pattern_is_refused(files):
    with pytest.raises(InvalidInput, match="nothing to search for"):
        files.search()
    with pytest.raises(InvalidInput):
        files.search(content="(")
    with pytest.raises(InvalidInput):
        files.search("")
