"""Snapshots, rollbacks and forks from the command line."""

from __future__ import annotations

import json
import re

import pytest

from atoll import Sandbox, Snapshots


@pytest.fixture(autouse=True)
def nothing_is_left(atoll):
    yield
    for each in Snapshots().list():
        Snapshots().delete(each.name)


def out(done):
    assert done.code == 0, done.err
    return done.out.decode()


def test_create_list_show_and_delete(atoll, kept):
    assert out(atoll("snapshot", "create", kept[:6], "ready")) == "ready\n"
    made_up = out(atoll("snapshot", "create", kept)).strip()
    assert re.fullmatch("snap-[0-9a-f]{8}", made_up)
    head, *lines = out(atoll("snapshot")).splitlines()
    assert head.split() == ["NAME", "SANDBOX", "AGE", "SIZE", "LAYERS"]
    assert [line.split()[:2] for line in lines] == [[made_up, kept], ["ready", kept]]
    listed = json.loads(out(atoll("snapshot", "list", "--json", "--sandbox", kept[:-1])))
    assert [each["name"] for each in listed] == [made_up, "ready"]
    assert out(atoll("snapshot", "list", "--sandbox", "sb-other")).count("\n") == 1
    assert f"sandbox  {kept}" in out(atoll("snapshot", "show", "ready"))
    assert json.loads(out(atoll("snapshot", "show", "ready", "--json"))) == listed[1]
    assert out(atoll("snapshot", "delete", "ready", made_up)) == f"ready\n{made_up}\n"
    done = atoll("snapshot", "delete", "ready")
    assert (done.code, done.out) == (125, b"")
    assert "No snapshot has the name 'ready'" in done.err


def test_a_run_begins_with_a_snapshot(atoll, kept):
    Sandbox.connect(kept).files.write("a", "from there")
    atoll("snapshot", "create", kept, "ready")
    assert out(atoll("run", "--snapshot", "ready", "cat a")) == "from there"
    done = atoll("run", "--snapshot", "none", "cat a")
    assert done.code == 125
    assert "No snapshot has the name 'none'" in done.err


def test_rollback(atoll, kept):
    box = Sandbox.connect(kept)
    box.files.write("a", "then")
    atoll("snapshot", "create", kept, "ready")
    box.files.write("a", "now")
    assert out(atoll("rollback", kept, "ready")) == f"{kept}\n"
    assert Sandbox.connect(kept).files.read("a") == "then"
    assert atoll("rollback", kept).code == 125
    assert "No snapshot" in atoll("rollback", kept, "none").err


def test_fork_prints_the_ids_of_the_twins(atoll, kept):
    Sandbox.connect(kept).files.write("a", "1")
    ids = out(atoll("fork", kept[:8], "-n", "2", "-l", "try=1")).split()
    try:
        assert len(set(ids)) == 2
        assert kept not in ids
        assert out(atoll("exec", ids[0], "cat a")) == "1"
        assert set(out(atoll("list", "-q", "-l", "try=1")).split()) == set(ids)
    finally:
        out(atoll("destroy", *ids))
    assert "which sandbox" in atoll("fork").err
    assert "--count is 'many'" in atoll("fork", kept, "-n", "many").err


@pytest.mark.parametrize("name", ["ready.tar", "ready.tar.gz"])
def test_export_and_import(atoll, kept, tmp_path, name):
    Sandbox.connect(kept).files.write("a", "1")
    atoll("snapshot", "create", kept, "ready")
    file = str(tmp_path / name)
    assert out(atoll("snapshot", "export", "ready", file)) == f"{file}\n"
    assert "already a snapshot 'ready'" in atoll("snapshot", "import", file).err
    assert out(atoll("snapshot", "import", file, "--name", "theirs")) == "theirs\n"
    assert out(atoll("run", "--snapshot", "theirs", "cat a")) == "1"
    (tmp_path / "bad").write_bytes(b"nothing")
    done = atoll("snapshot", "import", str(tmp_path / "bad"))
    assert done.code == 125
    assert "This file cannot be imported" in done.err
    assert "limit of 1024" in atoll("snapshot", "import", file, "--name", "x", "--limit", "1K").err


def test_who_holds_a_file_is_named_and_ended_with_force(atoll, kept):
    holder = Sandbox.connect(kept).start("exec sleep 1000 > held & echo x; wait")
    next(iter(holder))
    done = atoll("snapshot", "create", kept, "ready")
    assert done.code == 125
    assert re.search(r"Process \d+ \(sleep 1000\) has /workspace/held open to write to", done.err)
    assert out(atoll("snapshot", "create", kept, "ready", "--force")) == "ready\n"


@pytest.mark.parametrize(
    "words", [["crate", "x"], ["show"], ["create"], ["delete"], ["export", "a"], ["import"], ["list", "x"]]
)
def test_what_makes_no_sense_is_told(atoll, words):
    done = atoll("snapshot", *words)
    assert (done.code, done.out) == (125, b"")
    assert done.err
