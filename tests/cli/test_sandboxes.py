"""`list`, `stop`, `resume`, `destroy`, `exec` and `cp`: sandboxes that exist."""

from __future__ import annotations

import json
import os
import re

import pytest

from atoll import Sandbox

from .conftest import stop


@pytest.fixture
def make(atoll):
    """Makes sandboxes, one after the other; those that are left end with the test."""
    made = []

    def create(**wishes):
        made.append(Sandbox.create(**wishes))
        return made[-1].id

    yield create
    for sandbox in made:
        sandbox.destroy()


def test_a_list_of_nothing_is_its_head(atoll):
    assert atoll("list").out == b"ID  WALL  STATUS  AGE  EXPIRES  LABELS\n"
    assert json.loads(atoll("list", "--json").out) == []
    assert atoll("list", "-q").out == b""
    with atoll.terminal("list") as terminal:
        assert terminal.wait() == 0
        assert b'`atoll run --keep "echo hi"` makes one that stays' in terminal.screen.replace(b"\r\n", b" ")


def test_a_list_is_an_aligned_table_newest_first(atoll, make):
    old = make(labels={"team": "red", "n": "1"})
    new = make(lifetime=90)
    head, *rows = atoll("list").out.decode().splitlines()
    assert [row.split()[0] for row in rows] == [new, old]
    columns = [match.start() for match in re.finditer(r"\S+", head)]
    for row in rows:
        assert all(row[column] != " " and row[column - 1] == " " for column in columns[1:]), row
    assert re.fullmatch(rf"{old} +jail +running +\d+s +in 59m +team=red,n=1", rows[1])
    assert re.fullmatch(rf"{new} +jail +running +\d+s +in 1m +-", rows[0])


def test_a_list_can_be_filtered(atoll, make):
    red = make(labels={"team": "red"})
    blue = make(labels={"team": "blue"})
    assert atoll("list", "-q", "-l", "team=red").out.decode().split() == [red]
    assert atoll("list", "-q", "--status", "running").out.decode().split() == [blue, red]
    assert atoll("list", "-q", "--status", "paused").out == b""
    assert atoll("list", "-q", "-p", "fake").out == b""
    wrong = atoll("list", "--status", "asleep")
    assert wrong.code == 125
    assert "status is 'asleep'; give one of creating, gone, paused, running, stopped." in wrong.err


def test_a_list_for_programs_tells_everything(atoll, make):
    id = make(labels={"team": "red"}, resources={"memory": "64M"})
    (info,) = json.loads(atoll("list", "--json").out)
    assert info["id"] == id
    assert (info["status"], info["driver"], info["labels"]) == ("running", "jail", {"team": "red"})
    assert info["resources"]["memory"] == 64 << 20
    assert "seccomp" in info["walls"]
    assert info["limits"].keys() == {"memory", "cpu", "pids", "disk", "sockets"}


def test_one_that_has_ended_is_told_of_once_with_the_reason(atoll, make, eventually):
    id = make(lifetime=0.5)
    seen = []
    eventually(lambda: seen.append(atoll("list").out.decode()) or "gone" in seen[-1])
    assert re.search(rf"{id} +jail +gone +\d+s +- +-  \(its lifetime is over\)", seen[-1])
    assert id not in atoll("list").out.decode()


def test_colours_are_for_terminals_that_want_them(atoll, kept):
    assert b"\x1b[" not in atoll("list").out
    with atoll.terminal("list") as terminal:
        assert terminal.wait() == 0
        assert b"\x1b[32mrunning\x1b[0m" in terminal.screen
    with atoll.terminal("list", env={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
        assert b"running" in terminal.screen
        assert b"\x1b[" not in terminal.screen


def test_destroy_takes_ids_and_their_beginnings(atoll, make):
    ids = [make(), make(), make()]
    assert atoll("destroy", ids[0], ids[1][:8]).out.decode().split() == ids[:2]
    assert atoll.sandboxes() == [ids[2]]


def test_destroy_takes_labels(atoll, make):
    red, blue = make(labels={"team": "red"}), make(labels={"team": "blue"})
    assert atoll("destroy", "-l", "team=red").out.decode() == f"{red}\n"
    assert atoll.sandboxes() == [blue]
    nothing = atoll("destroy", "-l", "team=red")
    assert nothing == (0, b"", "atoll: There is nothing to destroy.\n")


def test_destroy_takes_all(atoll, make):
    ids = {make(), make()}
    assert set(atoll("destroy", "--all", "-y").out.decode().split()) == ids


def test_destroy_goes_on_after_one_that_is_not_there(atoll, make):
    id = make()
    done = atoll("destroy", "sb-nobody", id)
    assert (done.code, done.out.decode()) == (125, f"{id}\n")
    assert "No sandbox has the id 'sb-nobody'." in done.err


def test_destroy_of_all_asks(atoll, make):
    ids = {make(), make()}
    refused = atoll("destroy", "--all")
    assert (refused.code, refused.out) == (125, b"")
    assert "`atoll destroy --all --yes` does not ask" in refused.err
    for answer, code, left in ((b"n\n", 1, ids), (b"y\n", 0, set())):
        with atoll.terminal("destroy", "--all") as terminal:
            shown = terminal.expect(rb"Destroy them\? \[y/N\] ").decode()
            assert all(id in shown for id in ids)
            terminal.type(answer)
            assert terminal.wait() == code
        assert set(atoll.sandboxes()) == left


@pytest.mark.parametrize("words", [[], ["--all", "-l", "a=b"], ["--all", "sb-x"]])
def test_destroy_wants_to_know_which(atoll, words):
    done = atoll("destroy", *words)
    assert done.code == 125
    assert "Say which sandboxes to destroy" in done.err


def test_a_stopped_one_goes_on_with_its_files_and_variables(atoll, make):
    id, other = make(), make()
    assert atoll("exec", id, "--code", "x = 41; f = open('f', 'w')").code == 0
    stopped = atoll("stop", id[:-1], "sb-nobody", other, "--wait", "5s")
    assert (stopped.code, stopped.out.decode().split()) == (125, [id, other])
    assert "atoll: main/f is not kept: an open file cannot be kept.\n" in stopped.err
    assert "sb-nobody" in stopped.err
    assert atoll("list", "-q", "--status", "stopped").out.decode().split() == [other, id]
    refused = atoll("exec", id, "true")
    assert refused.code == 125
    assert f"is stopped. Call resume() first, or `atoll resume {id}`." in refused.err
    assert atoll("resume", id) == (0, f"{id}\n".encode(), "")
    assert atoll("resume", id).code == 0, "one that runs is left alone"
    assert atoll("exec", id, "--code", "x + 1").out == b"42\n"
    assert atoll("exec", id, "ls").out == b"f\n"


@pytest.mark.parametrize("name", ["stop", "resume"])
def test_stop_and_resume_want_to_know_which(atoll, name):
    done = atoll(name)
    assert (done.code, done.out) == (125, b"")
    assert f"Say which sandboxes to {name}, by their ids" in done.err


def test_a_time_that_is_none_stops_nothing(atoll, make):
    id = make()
    assert atoll("stop", id, "--wait", "soon").code == 125
    assert atoll("exec", id, "echo runs").out == b"runs\n"


def test_exec_of_nothing_says_what_could_be(atoll, make):
    done = atoll("exec", make(), input=None)
    assert done.code == 125
    assert "--code with a cell" in done.err


def test_a_beginning_of_several_ids_is_refused(atoll, make):
    ids = sorted([make(), make()])
    done = atoll("exec", "sb-", "true")
    assert done.code == 125
    assert f"'sb-' is the beginning of several ids: {ids[0]}, {ids[1]}. Give more of it." in done.err


def test_exec_reaches_a_sandbox_of_another_process(atoll, kept):
    assert atoll("exec", kept, "echo $A > f; pwd; exit 9", env={"A": "no"}) == (9, b"/workspace\n", "")
    assert atoll("exec", kept[:9], "-e", "A=1", "-w", "/tmp", "--", "sh", "-c", "pwd; echo $A").out == b"/tmp\n1\n"
    assert atoll("exec", kept, "cat", input=b"\xff\0").out == b"\xff\0"
    assert atoll("exec", kept, "-t", "0.2", "sleep 60").code == 124
    assert atoll("exec", kept, "-t", "none", "echo endless").out == b"endless\n"


def test_exec_finds_the_one_sandbox_with_a_label(atoll, make):
    red, blue = make(labels={"team": "red", "n": "1"}), make(labels={"team": "blue", "n": "1"})
    assert atoll("exec", red, "echo red > f").code == 0
    assert atoll("exec", blue, "echo blue > f").code == 0
    assert atoll("exec", "-l", "team=red", "cat f; exit 4") == (4, b"red\n", "")
    assert atoll("exec", "--label", "team=blue", "-l", "n=1", "--", "cat", "f") == (0, b"blue\n", "")
    assert atoll("exec", "-l", "team=blue", "cat", "f", "-n") == (0, b"     1\tblue\n", "")
    assert "Give an id or -l KEY=VALUE, not both" in atoll("exec", "cat", "-l", "team=blue", "f").err
    assert atoll("exec", "-l", "team=red", "--lang", "python", "print(open('f').read())").out == b"red\n\n"
    several = atoll("exec", "-l", "n=1", "true")
    assert several.code == 125
    assert f"Several sandboxes carry n=1: {blue}, {red}. Give one more label, or an id instead." in several.err
    assert atoll("destroy", red).code == 0
    none = atoll("exec", "-l", "team=red", "-l", "n=1", "true")
    assert none.code == 125
    assert "No sandbox carries team=red,n=1. `atoll list` shows those that exist." in none.err
    assert atoll("exec", "-l", "n=1", "cat f").out == b"blue\n"


def test_options_of_the_command_are_its_own(atoll, kept):
    assert atoll("exec", kept, "echo", "-n", "-l", "a=b", "--keep").out == b"-l a=b --keep"
    assert atoll("exec", "-e", "A=1", kept, "-w", "/tmp", "sh", "-c", "echo $A; pwd", "-t").out == b"1\n/tmp\n"
    assert "-l KEY=VALUE finds one by its label" in atoll("exec").err


@pytest.mark.parametrize("id", ["sb-nobody", "", "' or 1=1 --"])
def test_exec_in_no_sandbox_is_an_error(atoll, id):
    done = atoll("exec", id, "true")
    assert done.code == 125
    assert done.err.startswith("atoll: ")


def test_exec_in_one_that_has_ended_says_why(atoll, make, eventually):
    sandbox = make(lifetime=0.5)
    eventually(lambda: "is gone: its lifetime is over" in atoll("exec", sandbox, "true").err, 10)


def test_ctrl_c_kills_what_exec_runs_and_leaves_the_sandbox(atoll, kept, eventually):
    process = atoll.start("exec", kept, "echo up; sleep 4321")
    assert process.stdout.readline() == b"up\n"
    sandbox = Sandbox.connect(kept)

    def running():
        return [process for process in sandbox.processes() if "4321" in process.command]

    assert running()
    assert stop(process) == (130, b"", "")
    eventually(lambda: not running())


def test_cp_carries_a_file_in_and_out(atoll, kept, tmp_path):
    data = bytes(range(256)) * 1000
    (tmp_path / "data").write_bytes(data)
    (tmp_path / "data").chmod(0o750)
    assert atoll("cp", "data", f"{kept}:", cwd=tmp_path) == (0, b"", "")
    assert atoll("cp", "data", f"{kept}:/tmp/other", cwd=tmp_path).code == 0
    assert atoll("exec", kept, "cmp data /tmp/other; stat -c %a data").out == b"750\n"
    assert atoll("cp", f"{kept[:8]}:/tmp/other", "back", cwd=tmp_path).code == 0
    assert (tmp_path / "back").read_bytes() == data
    (tmp_path / "dir").mkdir()
    assert atoll("cp", f"{kept}:data", "dir", cwd=tmp_path).code == 0
    assert (tmp_path / "dir" / "data").read_bytes() == data


def test_cp_carries_trees_in_and_out(atoll, kept, tmp_path):
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "a").write_text("a")
    os.symlink("sub/a", tmp_path / "tree" / "link")
    assert atoll("cp", "tree", f"{kept}:", cwd=tmp_path).code == 0
    assert atoll("cp", "tree", f"{kept}:", cwd=tmp_path).code == 0, "again, into the directory that is there"
    assert atoll("cp", "tree/.", f"{kept}:flat", cwd=tmp_path).code == 0
    found = atoll("exec", kept, "find . | sort").out.decode().split()
    assert found == [".", "./flat", "./flat/link", "./flat/sub", "./flat/sub/a",
                     "./tree", "./tree/link", "./tree/sub", "./tree/sub/a"]  # fmt: skip
    out = atoll("cp", f"{kept}:tree", "out", cwd=tmp_path)
    assert out == (0, b"", "atoll: 1 left out, being no files, directories or wanted links: link\n")
    assert (tmp_path / "out" / "sub" / "a").read_text() == "a"
    refused = atoll("cp", f"{kept}:tree/.", "out", cwd=tmp_path)
    assert refused.code == 125
    assert "-f replaces files in it" in refused.err
    assert atoll("cp", "-f", "--symlinks", f"{kept}:tree/.", "out", cwd=tmp_path) == (0, b"", "")
    assert os.readlink(tmp_path / "out" / "link") == "sub/a"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "b"], "One of the two is in a sandbox, written as ID:PATH"),
        (["{id}:a", "{id}:b"], "One of the two is in a sandbox, written as ID:PATH"),
        (["/no/such", "{id}:"], "/no/such: there is no such file here."),
        (["{id}:no/such", "."], "No such file or directory: /workspace/no/such"),
        (["/etc/hostname", "{id}:/usr/bin/x"], "Read-only file system"),
        (["/etc/hostname", "sb-nobody:x"], "No sandbox has the id 'sb-nobody'."),
        (["{id}:/etc/passwd", "/proc/no/such"], "/proc/no"),
    ],
)
def test_cp_of_what_cannot_be_is_a_sentence(atoll, kept, tmp_path, words, sentence):
    done = atoll("cp", *(word.format(id=kept) for word in words), cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (125, b"", 1)
    assert sentence in done.err
    assert list(tmp_path.iterdir()) == []


def test_what_a_guest_names_its_files_cannot_command_the_terminal(atoll, kept):
    path = "\x1b]0;owned\x07"
    done = atoll("cp", f"{kept}:{path}", "/tmp")
    assert done.code == 125
    assert "\x1b" not in done.err
    assert "\\x1b]0;owned\\x07" in done.err
