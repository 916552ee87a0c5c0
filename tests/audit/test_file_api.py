"""Refusals of the file API are listed by `audit()`; what is allowed is not."""

from __future__ import annotations

import os
import time

import pytest

from atoll import AsyncSandbox, FileDenied, FileMissing, InvalidInput, Sandbox, SandboxGone
from atoll.client import noting
from atoll.client.auditing import note
from atoll.client.files import AsyncFiles

DENIED = {
    "read": lambda files, host: files.read("closed/file"),
    "read_bytes": lambda files, host: files.read_bytes("/workspace/closed/file"),
    "write": lambda files, host: files.write("closed/file", "x"),
    "list": lambda files, host: files.list("closed"),
    "info": lambda files, host: files.info("closed/file"),
    "exists": lambda files, host: files.exists("closed/file"),
    "mkdir": lambda files, host: files.mkdir("closed/more/and/more"),
    "remove": lambda files, host: files.remove("closed/file"),
    "move": lambda files, host: files.move("open/file", "closed/moved"),
    "copy": lambda files, host: files.copy("open/file", "closed/copy"),
    "upload": lambda files, host: files.upload(host / "file", "closed/file"),
    "upload_tree": lambda files, host: files.upload(host, "closed/tree"),
    "download": lambda files, host: files.download("closed/file", host / "got"),
    "watch": lambda files, host: files.watch("closed"),
    "search": lambda files, host: files.search("*", path="closed"),
}
CALLED = {"read_bytes": "read", "exists": "info", "upload_tree": "upload"}


@pytest.fixture
def host(tmp_path):
    (tmp_path / "file").write_text("of the host")
    return tmp_path


@pytest.fixture
def closed(box):
    """Two directories with a file in each; nobody may do anything with one of them."""
    box.run("mkdir open closed && echo a > open/file && echo b > closed/file && chmod 000 closed", check=True)
    return box


def seen(sandbox):
    return [(each.operation, each.path, each.source) for each in sandbox.audit()]


@pytest.mark.parametrize("name", DENIED)
def test_every_operation_that_is_denied_is_noted(closed, host, name):
    before = time.time()
    with pytest.raises(FileDenied):
        DENIED[name](closed.files, host)
    (denial,) = closed.audit()
    assert denial.operation == CALLED.get(name, name)
    assert denial.path.split("/")[0] == "closed"
    assert (denial.source, denial.process) == ("files", None)
    assert before <= denial.time <= time.time()


@pytest.mark.parametrize("name", sorted(set(DENIED) - {"move", "copy"}))
def test_what_is_allowed_is_not_noted(box, host, name):
    box.run("mkdir closed && echo b > closed/file", check=True)
    DENIED[name](box.files, host)
    assert box.audit() == []


def test_moving_and_copying_as_allowed_is_not_noted(box):
    box.files.write("a", "x")
    box.files.copy("a", "b")
    box.files.move("b", "c")
    assert box.audit() == []
    assert box.files.read("c") == "x"


def test_every_method_of_the_file_api_is_listened_to():
    public = {name for name in vars(AsyncFiles) if not name.startswith("_")}
    assert public - set(noting._OPERATIONS) == {"read", "exists"}, "those are made of others"


def test_what_the_host_refuses_is_no_denial(closed, tmp_path):
    for local in (tmp_path / "not there", tmp_path):
        with pytest.raises(FileMissing):
            closed.files.upload(tmp_path / "not there", "open/x")
        with pytest.raises(FileMissing):
            closed.files.download("open/file", tmp_path / "no" / "such" / "place")
        assert closed.audit() == [], local


def test_a_missing_file_is_a_denial_only_where_rules_hide_it(box, ruled):
    with pytest.raises(FileMissing):
        box.files.read("secrets/key")
    assert box.audit() == [], "without rules nothing is hidden"
    ruled(box, "agent-safe")
    with pytest.raises(FileMissing):
        box.files.read("src/absent.py")
    with pytest.raises(FileMissing):
        box.files.read("/etc/absent")
    assert box.audit() == []
    with pytest.raises(FileMissing):
        box.files.read("secrets/key")
    with pytest.raises(FileMissing):
        box.files.copy("a/../.env", "b")
    assert not box.files.exists("/workspace/./deep/id.pem")
    assert seen(box) == [("read", "secrets/key", "files"), ("copy", ".env", "files"), ("info", "deep/id.pem", "files")]


def test_of_two_paths_the_one_that_the_rules_forbid_is_named(closed, ruled):
    ruled(closed, [("open/**", "write"), ("**", "read")])
    closed.run("chmod 500 closed", check=True)
    with pytest.raises(FileDenied):
        closed.files.move("closed/file", "open/x")
    with pytest.raises(FileDenied):
        closed.files.copy("open/file", "closed/x")
    assert seen(closed) == [("move", "closed/file", "files"), ("copy", "closed/x", "files")]


def test_a_path_outside_of_the_workspace_is_absolute(box):
    with pytest.raises(FileDenied):
        box.files.write("/usr/x", "x")
    assert seen(box) == [("write", "/usr/x", "files")]


def test_names_of_any_bytes_are_kept(closed):
    name = "closed/new\nline\x1b[31m" + os.fsdecode(b"\xff")
    with pytest.raises(FileDenied):
        closed.files.read(name)
    assert seen(closed) == [("read", name, "files")]


def test_another_process_sees_the_same(closed):
    with pytest.raises(FileDenied):
        closed.files.read("closed/file")
    assert Sandbox.connect(closed.id).audit() == closed.audit() != []


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_the_asynchronous_form_does_the_same(closed):
    sandbox = await AsyncSandbox.connect(closed.id)
    with pytest.raises(FileDenied):
        await sandbox.files.read("closed/file")
    await sandbox.files.read("open/file")
    assert [(each.operation, each.path) for each in await sandbox.audit()] == [("read", "closed/file")]


def test_a_listing_can_be_narrowed(closed):
    with pytest.raises(FileDenied):
        closed.files.read("closed/file")
    between = time.time()
    note(closed._core._record, "gate", "apply", ["out/a", "out/b"])
    assert [each.path for each in closed.audit()] == ["closed/file", "out/a", "out/b"]
    assert [each.path for each in closed.audit(source="gate")] == ["out/a", "out/b"]
    assert [each.path for each in closed.audit(since=between)] == ["out/a", "out/b"]
    assert closed.audit(source="kernel") == []
    for wrong in ({"since": "yesterday"}, {"since": float("nan")}, {"since": True}, {"source": "kernels"}):
        with pytest.raises(InvalidInput):
            closed.audit(**wrong)


def test_the_newest_are_kept_and_the_others_counted(box):
    record = box._core._record
    note(record, "gate", "apply", [f"old{number}" for number in range(9_000)])
    assert (len(box.audit()), box.audit().dropped) == (9_000, 0)
    note(record, "gate", "apply", [f"new{number}" for number in range(9_000)])
    found = box.audit()
    assert (len(found), found.dropped) == (10_000, 8_000)
    assert (found[0].path, found[-1].path) == ("old8000", "new8999")
    note(record, "gate", "apply", [f"flood{number}" for number in range(30_000)])
    found = box.audit()
    assert (len(found), found.dropped) == (10_000, 38_000)
    assert (found[0].path, found[-1].path) == ("flood20000", "flood29999")


def test_the_list_ends_with_the_sandbox(make):
    one, other = make(), make()
    for each in (one, other):
        note(each._core._record, "gate", "apply", ["x"])
    one.destroy()
    with pytest.raises(SandboxGone):
        one.audit()
    note(one._core._record, "gate", "apply", ["late"])
    database = other._core._record.store._db
    assert database.read("SELECT DISTINCT sandbox FROM denials") == [(other.id,)]


def test_a_refusal_is_raised_even_if_it_cannot_be_noted(closed):
    record = closed._core._record
    database = record.store._db
    database.write("ALTER TABLE denials RENAME TO denials_away")
    try:
        with pytest.raises(FileDenied) as caught:
            closed.files.read("closed/file")
        assert "could not be noted" in caught.value.__notes__[0]
    finally:
        database.write("ALTER TABLE denials_away RENAME TO denials")


@pytest.mark.parametrize("driver", ["jail", "fake"])
def test_info_names_the_sources_that_are_heard(make, driver):
    made = make(driver)
    assert made.info.audit == ("files", "gate")
    assert made.refresh().audit == ("files", "gate")
    assert Sandbox.connect(made.id).info.audit == ("files", "gate")
