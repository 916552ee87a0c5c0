"""Codebases: create, upload, download, list, read, write, delete."""

from __future__ import annotations

import hashlib
import os
import socket

import pytest

from atoll import (
    AsyncCodebases,
    Codebase,
    CodebaseNotFound,
    FileDenied,
    FileError,
    FileMissing,
    FilePresent,
    InvalidInput,
    InvalidPath,
    IsDirectory,
    NotDirectory,
    StoreError,
)
from atoll.codebases import records

from .looking import blobs, check_store, current, tree_of, versions


def test_a_directory_becomes_a_codebase_with_all_that_is_in_it(codebases, source, same):
    made = codebases.create("project", source)
    assert made.id.startswith("cb-")
    assert (made.name, made.owner, made.version) == ("project", records.this_user(), 1)
    assert (made.files, made.size) == (3, 6 + 10 + 256)
    assert codebases.get("project") == codebases.get(made.id) == made
    assert same("project", source)


def test_directories_keep_their_modes_and_times(codebases, source, shelf):
    (source / "empty").chmod(0o750)
    os.utime(source / "src" / "deep", ns=(10**18, 10**18))
    codebases.create("project", source)
    tree = current(shelf, "project")
    assert os.stat(f"{tree}/empty").st_mode & 0o7777 == 0o750
    assert os.stat(f"{tree}/src/deep").st_mtime_ns == 10**18


def test_without_a_directory_it_is_empty(codebases, shelf):
    made = codebases.create("empty")
    assert (made.version, made.files, made.size) == (0, 0, 0)
    assert codebases.files("empty") == []
    assert os.listdir(current(shelf, "empty")) == []


def test_an_upload_says_what_it_changed(codebases, source, same):
    codebases.create("project", source)
    (source / "readme.md").write_text("other\n")
    (source / "new").write_text("new\n")
    (source / "dangling").unlink()
    done = codebases.upload("project", source)
    assert done[:7] == (2, 1, 1, 1, 6, 6 + 4, ())
    assert (done.version, done.added, done.changed, done.removed, done.unchanged) == (2, 1, 1, 1, 6)
    assert codebases.get("project").version == 2
    assert same("project", source)


def test_an_upload_of_the_same_makes_no_version(codebases, source, home):
    made = codebases.create("project", source)
    for _ in range(2):
        done = codebases.upload("project", source)
        assert (done.version, done.added, done.changed, done.removed, done.bytes_stored) == (1, 0, 0, 0, 0)
    assert versions(home, made.id) == [1]
    assert codebases.get("project") == made


def test_a_touched_file_is_unchanged_and_keeps_its_stored_time(codebases, source, shelf):
    os.utime(source / "readme.md", ns=(10**18, 10**18))
    codebases.create("project", source)
    os.utime(source / "readme.md")
    assert codebases.upload("project", source).version == 1
    assert os.stat(f"{current(shelf, 'project')}/readme.md").st_mtime_ns == 10**18


def test_a_change_of_the_mode_alone_is_a_change(codebases, source, same):
    codebases.create("project", source)
    (source / "readme.md").chmod(0o755)
    done = codebases.upload("project", source)
    assert (done.version, done.changed) == (2, 1)
    assert same("project", source)


def test_set_uid_bits_are_dropped(codebases, source, shelf):
    (source / "readme.md").chmod(0o6755)
    codebases.create("project", source)
    assert os.stat(f"{current(shelf, 'project')}/readme.md").st_mode & 0o7777 == 0o755


def test_what_is_no_file_is_left_out_and_named(codebases, source):
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
        codebases.create("project")
        done = codebases.upload("project", source)
    assert done.skipped == ("pipe", "socket")
    assert {info.path for info in codebases.files("project")}.isdisjoint({"pipe", "socket"})


def test_ignored_paths_are_left_out_and_those_that_were_there_go(codebases, source):
    (source / "node_modules").mkdir()
    (source / "node_modules" / "big.js").write_text("x")
    (source / "a.log").write_text("x")
    (source / "kept.log").write_text("x")
    codebases.create("project", source)
    assert "node_modules/big.js" in {info.path for info in codebases.files("project")}
    done = codebases.upload("project", source, ignore=["node_modules/", "*.log", "!kept.log"])
    assert (done.removed, done.added, done.changed) == (3, 0, 0)
    paths = {info.path for info in codebases.files("project")}
    assert "kept.log" in paths
    assert paths.isdisjoint({"node_modules", "node_modules/big.js", "a.log"})
    with pytest.raises(InvalidInput, match="give a list of patterns"):
        codebases.upload("project", source, ignore="*.log")


def test_an_upload_may_go_to_a_directory_and_leave_the_rest(codebases, source, tmp_path, shelf):
    codebases.create("project", source)
    more = tmp_path / "more"
    more.mkdir()
    (more / "one").write_text("1")
    done = codebases.upload("project", more, at="src/lib/vendor")
    assert (done.added, done.removed) == (3, 0)
    assert codebases.read("project", "src/lib/vendor/one") == b"1"
    (more / "one").unlink()
    (more / "two").write_text("2")
    done = codebases.upload("project", more, at="src/lib/vendor")
    assert (done.added, done.removed) == (1, 1)
    assert codebases.read("project", "readme.md") == b"hello\n"
    (more / "two").unlink()
    (more / "three").write_text("3")
    done = codebases.upload("project", more, at="src/lib/vendor", delete=False)
    assert (done.added, done.removed) == (1, 0)
    assert sorted(os.listdir(f"{current(shelf, 'project')}/src/lib/vendor")) == ["three", "two"]


@pytest.mark.parametrize("at", ["readme.md", "link", "link/x", "readme.md/x"])
def test_an_upload_goes_through_no_file_and_no_link(codebases, source, at):
    codebases.create("project", source)
    with pytest.raises(NotDirectory, match="no directory in the codebase"):
        codebases.upload("project", source, at=at)
    assert codebases.get("project").version == 1
    assert codebases.upload("project", source, at="src").version == 2, "the control"


@pytest.mark.parametrize("at", ["/", "..", "a/../b", "a//b", "./a", "a/", "/src"])
def test_a_path_inside_a_codebase_is_relative_and_climbs_nowhere(codebases, source, at):
    codebases.create("project", source)
    with pytest.raises(InvalidInput, match="relative to the codebase"):
        codebases.upload("project", source, at=at)
    if at != "/src":  # which is a path from the top, as rules have it
        with pytest.raises(InvalidInput, match="relative to the codebase"):
            codebases.read("project", at)


def test_without_delete_a_file_takes_no_directorys_place(codebases, source, tmp_path):
    codebases.create("project", source)
    more = tmp_path / "more"
    more.mkdir()
    (more / "src").write_text("a file")
    with pytest.raises(IsDirectory, match="would be lost"):
        codebases.upload("project", more, delete=False)
    assert codebases.upload("project", more).added == 0
    assert codebases.read("project", "src") == b"a file"


def test_a_directory_may_take_a_files_place(codebases, source, same):
    codebases.create("project", source)
    (source / "readme.md").unlink()
    (source / "readme.md").mkdir()
    (source / "readme.md" / "x").write_text("x")
    codebases.upload("project", source, delete=False)
    assert same("project", source)


def test_equal_files_are_stored_once_for_all_codebases(codebases, source, home):
    codebases.create("one", source)
    stored = len(blobs(home))
    codebases.create("two", source, owner="somebody")
    assert len(blobs(home)) == stored
    codebases.write("two", "copy", b"more")
    assert len(blobs(home)) == stored + 1


def test_files_lists_everything_with_relative_paths(codebases, source):
    codebases.create("project", source)
    found = {info.path: info for info in codebases.files("project")}
    assert set(found) == {
        "readme.md", "src", "src/run.sh", "src/deep", "src/deep/data.bin", "empty", "link", "dangling",
    }  # fmt: skip
    script = found["src/run.sh"]
    assert (script.name, script.type, script.size, script.mode) == ("run.sh", "file", 10, 0o755)
    assert script.modified == pytest.approx((source / "src" / "run.sh").stat().st_mtime)
    assert (found["link"].type, found["link"].target) == ("symlink", "src/run.sh")
    assert found["empty"].type == "directory"


def test_a_file_is_read(codebases, source):
    codebases.create("project", source)
    assert codebases.read("project", "src/deep/data.bin") == bytes(range(256))
    with pytest.raises(FileMissing):
        codebases.read("project", "src/missing")
    with pytest.raises(IsDirectory):
        codebases.read("project", "src")
    with pytest.raises(FileError, match="symbolic link"):
        codebases.read("project", "link")
    with pytest.raises(NotDirectory):
        codebases.read("project", "readme.md/x")


def test_a_file_is_written_as_a_version(codebases, source):
    codebases.create("project", source)
    done = codebases.write("project", "a/b/c.txt", "grün")
    assert (done.version, done.added, done.changed) == (2, 3, 0)
    assert codebases.read("project", "a/b/c.txt") == "grün".encode()
    done = codebases.write("project", "src/run.sh", b"#!/bin/true\n")
    assert (done.version, done.added, done.changed) == (3, 0, 1)
    modes = {info.path: info.mode for info in codebases.files("project")}
    assert (modes["src/run.sh"], modes["a/b/c.txt"]) == (0o755, 0o644)
    assert codebases.write("project", "src/run.sh", b"#!/bin/true\n").version == 3
    with pytest.raises(IsDirectory):
        codebases.write("project", "src", b"")
    with pytest.raises(NotDirectory):
        codebases.write("project", "readme.md/x", b"")
    with pytest.raises(InvalidInput, match="give text or bytes"):
        codebases.write("project", "x", 1)


def test_a_download_gives_the_same_tree(codebases, source, tmp_path):
    codebases.create("project", source)
    moved = codebases.download("project", tmp_path / "out")
    assert tree_of(tmp_path / "out") == tree_of(source)
    assert (moved.files, moved.directories, moved.symlinks, moved.size) == (3, 3, 2, 272)


def test_a_download_into_a_directory_that_is_not_empty_must_be_wished_for(codebases, source, tmp_path):
    codebases.create("project", source)
    out = tmp_path / "out"
    out.mkdir()
    (out / "foreign").write_text("mine")
    (out / "readme.md").write_text("old")
    with pytest.raises(FilePresent, match="overwrite=True"):
        codebases.download("project", out)
    assert (out / "readme.md").read_text() == "old"
    codebases.download("project", out, overwrite=True)
    assert (out / "foreign").read_text() == "mine"
    assert (out / "readme.md").read_text() == "hello\n"


def test_a_download_writes_through_no_link(codebases, source, tmp_path):
    codebases.create("project", source)
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (outside / "victim").write_text("safe")
    (out / "readme.md").symlink_to(outside / "victim")
    (out / "src").symlink_to(outside)
    with pytest.raises(FileError):
        codebases.download("project", out, overwrite=True)
    assert os.listdir(outside) == ["victim"]
    (out / "src").unlink()
    codebases.download("project", out, overwrite=True)
    assert (outside / "victim").read_text() == "safe"
    assert not (out / "readme.md").is_symlink()
    assert (out / "readme.md").read_text() == "hello\n"


@pytest.mark.parametrize(("name", "kind"), [("readme.md", "directory"), ("src", "file")])
def test_a_download_refuses_what_is_in_the_way_and_names_it(codebases, source, tmp_path, name, kind):
    codebases.create("project", source)
    out = tmp_path / "out"
    out.mkdir()
    if kind == "directory":
        (out / name).mkdir()
    else:
        (out / name).write_text("mine")
    with pytest.raises((IsDirectory, NotDirectory), match=name):
        codebases.download("project", out, overwrite=True)
    assert [entry for entry in os.listdir(out) if entry.startswith(".atoll")] == []


def test_an_old_version_can_be_had_while_it_is_used(codebases, shelf, source, tmp_path):
    codebases.create("project", source)
    before = tree_of(source)
    use = shelf.use("project")
    (source / "readme.md").write_text("other\n")
    codebases.upload("project", source)
    codebases.download("project", tmp_path / "old", version=1)
    assert tree_of(tmp_path / "old") == before
    os.close(use.descriptor)
    codebases.write("project", "x", b"")
    with pytest.raises(FileMissing, match="no version 1, or no more; there is 3"):
        codebases.download("project", tmp_path / "older", version=1)


def test_codebases_are_listed_newest_first_and_by_owner(codebases):
    made = [codebases.create(name, owner=owner) for name, owner in [("a", "ann"), ("b", "bob"), ("a", "bob")]]
    assert codebases.list() == made[::-1]
    assert codebases.list("bob") == [made[2], made[1]]
    assert codebases.list(owner="carl") == []


def test_a_name_is_unique_for_its_owner(codebases, source):
    first = codebases.create("a")
    with pytest.raises(InvalidInput, match=f"already: {first.id}"):
        codebases.create("a", source)
    assert codebases.create("a", owner="bob").name == "a"
    assert len(codebases.list()) == 2


def test_a_codebase_is_found_by_name_owner_or_the_beginning_of_its_id(codebases):
    mine = codebases.create("a")
    his = codebases.create("a", owner="bob")
    only_his = codebases.create("b", owner="bob")
    her = codebases.create("b2", owner="ann"), codebases.create("b2", owner="eve")
    assert codebases.get("a") == mine
    assert codebases.get("bob/a") == his
    assert codebases.get("b") == only_his
    assert codebases.get(his.id[:8]) == his
    assert codebases.get(his) == his
    with pytest.raises(InvalidInput, match="several"):
        codebases.get("cb-")
    with pytest.raises(InvalidInput, match=f"{her[1].id}.*owner/name"):
        codebases.get("b2")
    for unknown in ("c", "bob/c", "cb-zzzzzzzzzz", "carl/a"):
        with pytest.raises(CodebaseNotFound, match="atoll codebase list"):
            codebases.get(unknown)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", ".a", "cb-x", "a\n", "ä", "x" * 101, None, 1])
def test_a_name_that_could_not_be_typed_is_refused(codebases, name):
    with pytest.raises(InvalidInput):
        codebases.create(name)
    assert codebases.list() == []


@pytest.mark.parametrize("owner", ["", "a/b", "a\nb", "x" * 101, 1])
def test_an_owner_that_could_not_be_told_is_refused(codebases, owner):
    with pytest.raises(InvalidInput, match="The owner is"):
        codebases.create("a", owner=owner)


def test_a_deleted_codebase_is_gone_with_all_its_files(codebases, source, home):
    made = codebases.create("project", source)
    other = codebases.create("other")
    assert codebases.delete("project") == made
    assert codebases.list() == [other]
    with pytest.raises(CodebaseNotFound):
        codebases.upload(made, source)
    check_store(home)
    assert blobs(home) == []
    assert not (home / "codebases" / made.id).exists()
    assert codebases.create("project", source).version == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; test_as_user.py has this")
def test_a_file_that_may_not_be_read_is_named_and_nothing_is_uploaded(codebases, source, home):
    (source / "secret").write_text("x")
    (source / "secret").chmod(0)
    with pytest.raises(FileDenied, match="secret"):
        codebases.create("project", source)
    assert codebases.list() == []


def test_a_source_that_is_no_directory_is_refused_and_leaves_nothing(codebases, source):
    with pytest.raises(FileMissing):
        codebases.create("project", source / "missing")
    with pytest.raises(NotDirectory, match="is for write"):
        codebases.create("project", source / "readme.md")
    assert codebases.list() == []


def test_the_state_directory_is_left_out_of_what_holds_it(codebases, source, home):
    codebases.create("project", source)
    done = codebases.upload("project", home.parent)
    assert done.skipped == ("state",)
    assert "source/readme.md" in {info.path for info in codebases.files("project")}


def test_progress_is_told_of_files_that_are_read(codebases, source, tmp_path):
    heard = []
    codebases.create("project", source, on_progress=lambda *counts: heard.append(counts))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    heard.clear()
    codebases.download("project", tmp_path / "out", on_progress=lambda *counts: heard.append(counts))
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_a_broken_record_is_told_of_and_not_taken_for_none(codebases, source, home):
    made = codebases.create("project", source)
    about = home / "codebases" / made.id / "about.json"
    kept = about.read_bytes()
    for broken in (b"", b"{}", b"[]", kept.replace(b'"format": 1', b'"format": 2')):
        about.write_bytes(broken)
        with pytest.raises(StoreError, match="cannot be read"):
            codebases.list()
    about.write_bytes(kept)
    assert codebases.list() == [made]
    (home / "codebases" / made.id / "versions" / "1" / "manifest.json").write_bytes(b'{"format": 1, "entries": []}')
    with pytest.raises(StoreError, match="manifest"):
        codebases.files("project")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_all_of_it_can_be_awaited(home, source, tmp_path, backend):
    import anyio

    async def story():
        codebases = AsyncCodebases()
        made = await codebases.create("project", source)
        assert isinstance(made, Codebase)
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(codebases.write, "project", f"file{number}", f"{number}")
        assert (await codebases.upload("project", source, delete=False)).version == 5
        assert await codebases.read("project", "file3") == b"3"
        assert len(await codebases.files("project")) == 12
        assert (await codebases.download("project", tmp_path / "out")).files == 7
        assert await codebases.get("project") == (await codebases.list())[0]
        await codebases.delete("project")
        assert await codebases.list() == []

    anyio.run(story, backend=backend)


def test_a_directory_of_a_codebase_is_listed_with_and_without_what_is_below(codebases):
    made = codebases.create("listed")
    for path in ("top.txt", "src/main.py", "src/deep/inner.py", "srcery/other.py"):
        codebases.write(made, path, "x")

    def paths(*words, **more):
        return [info.path for info in codebases.files(made, *words, **more)]

    assert paths(recursive=False) == ["src", "srcery", "top.txt"]
    assert paths("src") == ["src/deep", "src/deep/inner.py", "src/main.py"]
    assert paths("src", recursive=False) == ["src/deep", "src/main.py"]
    with pytest.raises(FileMissing, match=r"no none in"):
        paths("none")
    with pytest.raises(NotDirectory, match=r"top\.txt is no directory"):
        paths("top.txt")
    with pytest.raises(InvalidPath):
        paths("../src")


def test_an_upload_tells_the_size_of_what_was_given_and_a_write_its_digest(codebases, tmp_path):
    made = codebases.create("told")
    for _ in range(2):
        done = codebases.write(made, "a.txt", "hello")
        assert (done.size, done.digest) == (5, hashlib.sha256(b"hello").hexdigest())
    (tmp_path / "b.txt").write_text("four")
    for _ in range(2):
        done = codebases.upload(made, tmp_path)
        assert (done.size, done.digest) == (4, None)
