"""`files`: reading, writing, listing, moving, removing, searching."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...client.feed import Input
from ...errors import (
    FileDenied,
    FileError,
    FileMissing,
    FilePresent,
    InvalidInput,
    IsDirectory,
    NotDirectory,
    NotEmpty,
)
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks
from ..needs import needs


class FileChecks(Checks):
    """Files."""

    def test_text_comes_back_as_it_was(self, sandbox: Sandbox, place: str) -> None:
        text = "Grüße, 世界 ☃\r\n\ttabs and \0 too\n"
        assert sandbox.files.write(f"{place}/text", text) == len(text.encode())
        assert sandbox.files.read(f"{place}/text") == text
        sandbox.files.write(f"{place}/text", "")
        assert sandbox.files.read(f"{place}/text") == ""

    def test_bytes_come_back_as_they_were(self, sandbox: Sandbox, place: str) -> None:
        data = os.urandom(1 << 20) + bytes(range(256)) * 8192
        assert sandbox.files.write(f"{place}/data", data) == len(data)
        assert sandbox.files.read_bytes(f"{place}/data") == data
        assert sandbox.files.read_bytes(f"{place}/data", offset=1 << 20, size=256) == bytes(range(256))
        assert sandbox.files.read_bytes(f"{place}/data", offset=len(data) + 5) == b""

    def test_a_file_object_or_pieces_can_be_written(self, sandbox: Sandbox, place: str) -> None:
        pieces: list[str | bytes] = [b"one ", "two"]
        sources: list[Input] = [io.BytesIO(b"one two"), io.StringIO("one two"), iter(pieces)]
        for source in sources:
            sandbox.files.write(f"{place}/file", source)
            assert sandbox.files.read(f"{place}/file") == "one two"

    @needs(Capability.COMMANDS)
    def test_commands_and_files_see_the_same(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/mine", "1")
        sandbox.run("echo 2 >> mine; echo 3 > yours", workdir=place, check=True)
        assert sandbox.files.read(f"{place}/mine") == "12\n"
        sandbox.files.write(f"{place}/yours", "4\n", append=True)
        assert sandbox.run("cat yours", workdir=place).stdout == "3\n4\n"

    def test_a_write_makes_directories_unless_told_not_to(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/a/b/c", "deep")
        assert sandbox.files.read(f"{place}/a/b/c") == "deep"
        with pytest.raises(FileMissing):
            sandbox.files.write(f"{place}/x/y", "no", parents=False)
        assert not sandbox.files.exists(f"{place}/x")

    @needs(Capability.COMMANDS)
    def test_the_mode_of_a_file_is_set_and_kept(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/tool", "#!/bin/sh\necho runs", mode=0o750)
        assert sandbox.files.info(f"{place}/tool").mode == 0o750
        assert sandbox.run("./tool", workdir=place).stdout == "runs\n"
        sandbox.files.write(f"{place}/tool", "#!/bin/sh\necho again")
        assert sandbox.run("./tool", workdir=place).stdout == "again\n"

    @needs(Capability.COMMANDS)
    def test_a_write_that_breaks_off_changes_nothing(self, sandbox: Sandbox, place: str) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"x" * (1 << 20)
            raise ZeroDivisionError

        sandbox.files.write(f"{place}/old", "whole")
        for name in ("old", "new"):
            with pytest.raises(ZeroDivisionError):
                sandbox.files.write(f"{place}/{name}", pieces())
        assert sandbox.files.read(f"{place}/old") == "whole"
        assert sandbox.run("ls -A", workdir=place).stdout == "old\n"

    def test_what_is_too_large_or_no_text_is_refused(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/data", b"\xff" * 100)
        with pytest.raises(FileError) as caught:
            sandbox.files.read(f"{place}/data")
        assert caught.value.errno == errno.EILSEQ
        with pytest.raises(FileError) as caught:
            sandbox.files.read_bytes(f"{place}/data", max_size=99)
        assert caught.value.errno == errno.EFBIG
        assert len(sandbox.files.read_bytes(f"{place}/data", max_size=100)) == 100

    def test_what_is_missing_is_said_to_be(self, sandbox: Sandbox, place: str) -> None:
        path = f"{place}/missing"
        calls: dict[str, Callable[[], object]] = {
            "read": lambda: sandbox.files.read(path),
            "list": lambda: sandbox.files.list(path),
            "info": lambda: sandbox.files.info(path),
            "remove": lambda: sandbox.files.remove(path),
            "move": lambda: sandbox.files.move(path, f"{place}/target"),
            "copy": lambda: sandbox.files.copy(path, f"{place}/target"),
            "search": lambda: sandbox.files.search("*", path=path),
        }
        for name, call in calls.items():
            with pytest.raises(FileMissing) as caught:
                call()
            assert caught.value.errno == errno.ENOENT, name
            assert "missing" in str(caught.value), name
        assert not sandbox.files.exists(path)
        sandbox.files.remove(path, missing_ok=True)

    def test_a_directory_is_no_file_and_a_file_no_directory(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/file", "x")
        sandbox.files.mkdir(f"{place}/directory")
        with pytest.raises(IsDirectory):
            sandbox.files.read(f"{place}/directory")
        with pytest.raises(IsDirectory):
            sandbox.files.write(f"{place}/directory", "x")
        with pytest.raises(NotDirectory):
            sandbox.files.list(f"{place}/file")
        with pytest.raises(NotDirectory):
            sandbox.files.read(f"{place}/file/below")
        assert not sandbox.files.exists(f"{place}/file/below")

    @needs(Capability.COMMANDS)
    def test_what_is_no_regular_file_is_refused_and_does_not_block(self, sandbox: Sandbox, place: str) -> None:
        sandbox.run("mkfifo pipe", workdir=place, check=True)
        assert sandbox.files.info(f"{place}/pipe").type == "other"
        with pytest.raises(FileError):
            sandbox.files.read(f"{place}/pipe")
        with pytest.raises(FileError):
            sandbox.files.write(f"{place}/pipe", "x", append=True)

    @needs(Capability.COMMANDS, Capability.ISOLATION)
    def test_what_the_user_may_not_touch_is_denied(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/mine", "x")
        for path in ("/usr/bin/intruder", "/etc/intruder", "/intruder"):
            with pytest.raises(FileDenied):
                sandbox.files.write(path, "x")
            assert sandbox.run(["touch", path]).exit_code != 0
        with pytest.raises(FileDenied):
            sandbox.files.remove("/usr/bin/env")
        sandbox.run("chmod 0 mine", workdir=place, check=True)
        with pytest.raises(FileDenied):
            sandbox.files.read(f"{place}/mine")

    @needs(Capability.COMMANDS)
    def test_listing_tells_what_is_there(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/file", "12345", mode=0o640)
        sandbox.files.write(f"{place}/sub/below", "x")
        sandbox.run("ln -s sub link; ln -s nowhere dangling; mkdir empty", workdir=place, check=True)
        listed = {info.name: info for info in sandbox.files.list(place)}
        assert {name: info.type for name, info in listed.items()} == {
            "file": "file",
            "sub": "directory",
            "empty": "directory",
            "link": "symlink",
            "dangling": "symlink",
        }
        assert (listed["file"].size, listed["file"].mode) == (5, 0o640)
        assert listed["link"].target == "sub"
        assert listed["file"].path == sandbox.files.info(f"{place}/file").path
        assert sandbox.files.list(f"{place}/empty") == []
        assert [info.name for info in sandbox.files.list(f"{place}/link")] == ["below"]

    @needs(Capability.COMMANDS)
    def test_listing_goes_down_and_through_no_link(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/a/b/c", "x")
        sandbox.run("ln -s .. a/up", workdir=place, check=True)
        top = sandbox.files.info(place).path
        paths = [info.path for info in sandbox.files.list(place, recursive=True)]
        assert sorted(paths) == [f"{top}/a", f"{top}/a/b", f"{top}/a/b/c", f"{top}/a/up"]

    @needs(Capability.COMMANDS)
    def test_a_large_directory_is_listed_whole(self, sandbox: Sandbox, place: str) -> None:
        sandbox.run("seq -f file-with-a-long-name-%g 3000 | xargs touch", workdir=place, check=True)
        assert len({info.name for info in sandbox.files.list(place)}) == 3000

    @needs(Capability.COMMANDS)
    def test_info_is_of_the_file_or_of_the_link(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/file", "12345")
        sandbox.run("touch -d @1000000000 file; ln -s file link", workdir=place, check=True)
        info = sandbox.files.info(f"{place}/link")
        assert (info.type, info.size, info.modified) == ("file", 5, 1_000_000_000.0)
        link = sandbox.files.info(f"{place}/link", follow=False)
        assert (link.type, link.target, link.name) == ("symlink", "file", "link")

    def test_directories_are_made(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.mkdir(f"{place}/a/b/c", mode=0o700)
        assert sandbox.files.info(f"{place}/a/b/c").mode == 0o700
        sandbox.files.mkdir(f"{place}/a/b/c")
        with pytest.raises(FilePresent):
            sandbox.files.mkdir(f"{place}/a", exist_ok=False)
        with pytest.raises(FileMissing):
            sandbox.files.mkdir(f"{place}/x/y", parents=False)
        sandbox.files.write(f"{place}/file", "")
        with pytest.raises(FileError):
            sandbox.files.mkdir(f"{place}/file")

    @needs(Capability.COMMANDS)
    def test_removing_takes_what_was_meant_and_no_more(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/kept/file", "kept")
        sandbox.files.write(f"{place}/tree/below/file", "x")
        sandbox.run("ln -s ../kept tree/link; mkdir empty; ln -s kept/file link", workdir=place, check=True)
        with pytest.raises(NotEmpty):
            sandbox.files.remove(f"{place}/tree")
        sandbox.files.remove(f"{place}/tree", recursive=True)
        sandbox.files.remove(f"{place}/empty")
        sandbox.files.remove(f"{place}/link")
        assert sandbox.run("find . -type f -o -type l", workdir=place).stdout == "./kept/file\n"

    @needs(Capability.COMMANDS)
    def test_moving_renames_and_replaces_only_when_told(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/a", "A")
        sandbox.files.write(f"{place}/b", "B")
        with pytest.raises(FilePresent):
            sandbox.files.move(f"{place}/a", f"{place}/b")
        assert sandbox.files.read(f"{place}/b") == "B"
        sandbox.files.move(f"{place}/a", f"{place}/b", overwrite=True)
        assert sandbox.files.read(f"{place}/b") == "A"
        assert not sandbox.files.exists(f"{place}/a")
        sandbox.files.write(f"{place}/tree/file", "x")
        sandbox.files.move(f"{place}/tree", f"{place}/moved")
        assert sandbox.run("find . -type f | sort", workdir=place).stdout == "./b\n./moved/file\n"

    @needs(Capability.COMMANDS)
    def test_copying_copies_files_and_trees(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/tool", "#!/bin/sh\necho runs", mode=0o755)
        sandbox.files.copy(f"{place}/tool", f"{place}/twin")
        assert sandbox.run("./twin", workdir=place).stdout == "runs\n"
        with pytest.raises(FilePresent):
            sandbox.files.copy(f"{place}/tool", f"{place}/twin")
        sandbox.files.write(f"{place}/tree/sub/file", "deep")
        sandbox.run("ln -s sub/file tree/link", workdir=place, check=True)
        sandbox.files.copy(f"{place}/tree", f"{place}/copy")
        sandbox.files.write(f"{place}/tree/sub/file", "changed")
        assert sandbox.files.read(f"{place}/copy/sub/file") == "deep"
        assert sandbox.files.info(f"{place}/copy/link", follow=False).target == "sub/file"

    def test_search_finds_names(self, sandbox: Sandbox, place: str) -> None:
        for name in ("a.py", "sub/b.py", "sub/deep/c.PY", "notes.txt"):
            sandbox.files.write(f"{place}/{name}", "")
        assert self.found(sandbox, place, "*.py") == ["a.py", "sub/b.py"]
        assert self.found(sandbox, place, "*.py", ignore_case=True) == ["a.py", "sub/b.py", "sub/deep/c.PY"]
        assert self.found(sandbox, place, "sub/*") == ["sub/b.py"]
        assert self.found(sandbox, place, "sub/**") == ["sub/b.py", "sub/deep/c.PY"]
        assert self.found(sandbox, place, "nothing*") == []

    def test_search_finds_lines(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/a.py", "import os\nx = 1\nIMPORT = 2\n")
        sandbox.files.write(f"{place}/b.txt", "import nothing\n")
        hits = sandbox.files.search("*.py", content=r"^import \w+", path=place)
        assert [(hit.path.rpartition("/")[2], hit.line, hit.text) for hit in hits] == [("a.py", 1, "import os")]
        everywhere = sandbox.files.search(content="import", path=place, ignore_case=True)
        assert sorted((hit.path.rpartition("/")[2], hit.line) for hit in everywhere) == [
            ("a.py", 1),
            ("a.py", 3),
            ("b.txt", 1),
        ]
        assert not everywhere.truncated

    def test_search_says_when_there_is_more(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/many", "hit\n" * 50)
        hits = sandbox.files.search(content="hit", path=place, limit=10)
        assert (len(hits), hits.truncated) == (10, True)
        hits = sandbox.files.search(content="hit", path=place, limit=50)
        assert (len(hits), hits.truncated) == (50, False)

    def test_search_for_what_is_no_pattern_is_refused(self, sandbox: Sandbox, place: str) -> None:
        for content in (None, "(", ""):
            with pytest.raises(InvalidInput):
                sandbox.files.search(content=content, path=place)

    def test_many_file_operations_at_once(self, sandbox: Sandbox, place: str) -> None:
        def churn(number: int) -> str:
            path = f"{place}/{number}/file"
            sandbox.files.write(path, str(number) * 10_000)
            sandbox.files.copy(path, f"{path}2")
            return sandbox.files.read(f"{path}2")

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(churn, range(24)))
        assert answers == [str(n) * 10_000 for n in range(24)]

    def found(self, sandbox: Sandbox, place: str, pattern: str, *, ignore_case: bool = False) -> list[str]:
        top = sandbox.files.info(place).path
        hits = sandbox.files.search(pattern, path=place, ignore_case=ignore_case)
        return sorted(hit.path.removeprefix(f"{top}/") for hit in hits)
