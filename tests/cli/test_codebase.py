"""`atoll codebase`, as it is used."""

from __future__ import annotations

import json
import os

import pytest

from atoll import Codebases


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    (path / "src").mkdir(parents=True)
    (path / "readme.md").write_text("hello\n")
    (path / "src" / "run.sh").write_text("#!/bin/sh\n")
    (path / "src" / "run.sh").chmod(0o755)
    (path / "debug.log").write_text("noise\n")
    (path / os.fsdecode(b"odd\x1b[31m\xff")).symlink_to("no\nwhere")
    return path


@pytest.fixture(autouse=True)
def none_left(atoll):
    yield
    for each in Codebases().list():
        Codebases().delete(each)


def test_a_codebase_is_created_uploaded_shown_downloaded_and_deleted(atoll, source, tmp_path):
    made = atoll("codebase", "create", "project", str(source), "--ignore", "*.log")
    assert (made.code, made.err) == (0, "")
    id = made.out.decode().strip()
    assert id.startswith("cb-")
    again = atoll("codebase", "upload", "project", "--ignore", "*.log", cwd=source)
    assert again.out == b"version 1: nothing has changed\n"
    (source / "readme.md").write_text("other\n")
    done = atoll("codebase", "upload", id[:6], str(source))
    assert done.out == b"version 2: 1 added, 1 changed, 0 removed\n"
    shown = atoll("codebase", "show", "project").out.decode()
    assert f"id       {id}\n" in shown
    assert "version  2\n" in shown
    files = atoll("codebase", "show", "project", "--files").out.decode()
    assert "-0755           10 src/run.sh\n" in files
    assert "odd\\x1b[31m\\udcff -> no\\nwhere\n" in files, "nothing of a name reaches the terminal as a command"
    out = tmp_path / "out"
    assert atoll("codebase", "download", "project", str(out)) == (0, b"", "")
    assert (out / "readme.md").read_text() == "other\n"
    refused = atoll("codebase", "download", "project", str(out))
    assert refused.code == 125
    assert "-f replaces files" in refused.err
    assert atoll("codebase", "download", "project", str(out), "-f").code == 0
    gone = atoll("codebase", "delete", "project", "nothing")
    assert gone.code == 125
    assert gone.out.decode() == f"{id}\n"
    assert "No codebase is called 'nothing'" in gone.err


def test_codebases_are_listed_for_people_and_for_programs(atoll, source):
    atoll("codebase", "create", "one", str(source), "--owner", "ann")
    atoll("codebase", "create", "two")
    lines = atoll("codebase", "list").out.decode().splitlines()
    assert [line.split()[1] for line in lines] == ["NAME", "two", "one"]
    found = json.loads(atoll("codebase", "list", "--owner", "ann", "--json").out)
    assert [(each["name"], each["owner"], each["version"], each["files"]) for each in found] == [("one", "ann", 1, 3)]
    shown = json.loads(atoll("codebase", "show", "ann/one", "--files", "--json").out)
    assert [entry["path"] for entry in shown["entries"]] == [
        "debug.log", os.fsdecode(b"odd\x1b[31m\xff"), "readme.md", "src", "src/run.sh",
    ]  # fmt: skip


def test_patterns_come_from_a_file_and_uploads_may_go_below_and_keep(atoll, source, tmp_path):
    (source / ".gitignore").write_text("*.log\n# a comment\n\n")
    atoll("codebase", "create", "project", str(source), "--ignore-from", str(source / ".gitignore"))
    more = tmp_path / "more"
    more.mkdir()
    (more / "new.txt").write_text("new")
    os.mkfifo(more / "pipe")
    done = atoll("codebase", "upload", "project", str(more), "--at", "src", "--keep")
    assert done.out == b"version 2: 1 added, 0 changed, 0 removed\n"
    assert "1 left out, being no files, directories or links: pipe" in done.err
    paths = {info.path for info in Codebases().files("project")}
    assert {"src/run.sh", "src/new.txt", "readme.md"} <= paths
    assert "debug.log" not in paths


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["frob"], "There is no action 'frob'"),
        (["create"], "takes a name, and if you like a directory"),
        (["create", "a", "b", "c"], "takes a name, and if you like a directory"),
        (["create", "cb-x"], "looks like an id"),
        (["create", "a", "/nowhere/at/all"], "No such file or directory: /nowhere/at/all"),
        (["upload", "missing"], "No codebase is called 'missing'"),
        (["download", "missing"], "takes a codebase and a directory"),
        (["list", "x"], "takes no names"),
        (["list", "--force"], "--force is not for `atoll codebase list`"),
        (["create", "a", "--ignore-from", "/nowhere"], "/nowhere: No such file or directory"),
        (["delete"], "takes one or more codebases"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(atoll, words, complaint):
    done = atoll("codebase", *words)
    assert done.code == 125
    assert complaint in done.err
    assert done.out == b""


def test_progress_is_shown_on_a_terminal_only(atoll, tmp_path):
    many = tmp_path / "many"
    many.mkdir()
    for number in range(300):
        (many / str(number)).write_text(str(number))
    with atoll.terminal("codebase", "create", "seen", str(many)) as terminal:
        terminal.expect(b"of 300 files read")
        terminal.expect(b"cb-")
    assert atoll("codebase", "create", "unseen", str(many)).err == ""
