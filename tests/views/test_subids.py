"""The namespace of an ordinary user, with and without subordinate ids."""

import os

import pytest
from tests.views.worlds import USER

from atoll.engine import kernel, subids, threshold, views

TABLE = f"# a comment\nsomebody:100000:65536\n{USER}:1700000000:5\nbad line\nother:x:y\n"


def in_user_namespace(look, *, uid=USER):
    """What `look` gives in a child that is an ordinary user and has crossed the threshold."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            threshold.enter()
            os.write(writer, repr(look()).encode())
        except BaseException as error:  # noqa: BLE001
            os.write(writer, repr(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return eval(said)


def look():
    with open("/proc/self/uid_map", encoding="ascii") as users, open("/proc/self/gid_map", encoding="ascii") as groups:
        return users.read().split(), groups.read().split(), os.getuid(), os.getgid(), views.has_subids()


@pytest.fixture
def table(place, monkeypatch):
    """Tables that we read and the host's programs do not."""

    def use(text):
        path = f"{place}/table"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        tools = {name: (tool, path) for name, (tool, _) in subids._TOOLS.items()}
        monkeypatch.setattr(subids, "_TOOLS", tools)

    return use


def test_a_table_gives_the_first_id_of_a_user_by_name_or_number(place):
    path = f"{place}/table"
    with open(path, "w", encoding="utf-8") as file:
        file.write(TABLE)
    assert subids.first_of(path, ("nobody", str(USER))) == 1_700_000_000
    assert subids.first_of(path, ("somebody",)) == 100_000
    assert subids.first_of(path, ("other", "bad line")) is None
    assert subids.first_of(f"{place}/missing", ("somebody",)) is None


def test_without_subordinate_ids_there_is_one_id(table):
    table("")
    assert in_user_namespace(look) == (["0", str(USER), "1"], ["0", str(USER), "1"], 0, 0, False)


def test_ids_that_the_host_does_not_grant_are_done_without(table):
    # Our table says so, the host's does not: the programs refuse.
    table(f"{USER}:1700000000:5\n")
    assert in_user_namespace(look) == (["0", str(USER), "1"], ["0", str(USER), "1"], 0, 0, False)


@pytest.mark.skipif(not os.access("/usr/bin/newuidmap", os.X_OK), reason="newuidmap is not installed (package uidmap)")
def test_with_subordinate_ids_there_is_a_stranger():
    # The host's own tables, in mounts of our own.
    def story():
        return in_user_namespace(look)

    assert with_tables(story, "somebody:1700000000:5\n") == (
        ["0", str(USER), "1", "1", "1700000000", "1"],
        ["0", str(USER), "1", "1", "1700000000", "1"],
        0,
        0,
        True,
    )


def with_tables(story, text):
    """What a story gives where /etc/subuid and /etc/subgid say something else, in mounts of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            kernel.mount("tables", "/mnt", "tmpfs", 0, "mode=755")
            with open("/mnt/table", "w", encoding="ascii") as file:
                file.write(text)
            with open("/mnt/passwd", "w", encoding="ascii") as file:
                file.write(f"root:x:0:0::/:/bin/sh\nsomebody:x:{USER}:{USER}::/:/bin/sh\n")
            for path in ("/etc/subuid", "/etc/subgid"):
                kernel.mount("/mnt/table", path, None, kernel.MS_BIND)
            kernel.mount("/mnt/passwd", "/etc/passwd", None, kernel.MS_BIND)
            os.write(writer, repr(story()).encode())
        except BaseException as error:  # noqa: BLE001
            os.write(writer, repr(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return eval(said)
