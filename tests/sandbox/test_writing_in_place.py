"""`files.write` over what is there, behind the wall, where the sandbox's user is nobody special."""

from __future__ import annotations

import pytest

from atoll import FileDenied, FileError, InvalidInput, Sandbox


@pytest.fixture(scope="module")
def box():
    with Sandbox.create("jail") as made:
        yield made


def test_what_open_would_refuse_is_refused_and_what_it_would_do_is_done(box):
    box.run("mkdir d e; echo old | tee d/open d/closed > /dev/null; chmod 444 d/closed; chmod 555 d", check=True)
    box.files.write("d/open", "new")
    assert box.files.read("d/open") == "new"
    box.files.write("d/open", b"x" * 5_000_000)
    assert box.files.info("d/open").size == 5_000_000
    for path, atomic in (("d/closed", False), ("d/new", False), ("d/open", True)):
        with pytest.raises(FileDenied):
            box.files.write(path, "new", atomic=atomic)
    assert box.files.read("d/closed") == "old\n"
    box.run("echo old > e/closed; chmod 444 e/closed", check=True)
    box.files.write("e/closed", "new", atomic=True)
    assert box.files.read("e/closed") == "new"
    with pytest.raises(InvalidInput, match="append and atomic"):
        box.files.write("e/closed", "new", atomic=True, append=True)


@pytest.mark.parametrize("append", [False, True])
def test_a_link_to_what_is_the_guests_own_is_not_written_through(box, append):
    box.run("ln -sf /proc/self/comm link; ln -sf $PWD/plain other; echo old > plain", check=True)
    with pytest.raises(FileError, match=r"Not a regular|Permission denied"):
        box.files.write("link", "x", append=append)
    box.files.write("other", "new", append=append)
    assert box.files.read("plain") == ("old\nnew" if append else "new")


def test_a_watcher_hears_of_a_change(box):
    box.files.write("watched", "old")
    with box.files.watch(".") as watch:
        box.files.write("watched", "new")
        assert watch.read(10).type == "modified"
        box.files.write("watched", "newer", atomic=True)
        box.files.write("last", "x")
        seen = []
        while not seen or not seen[-1][1].endswith("last"):
            event = watch.read(10)
            seen.append((event.type, event.path))
    assert ("created", "/workspace/watched") in seen or ("moved", "/workspace/watched") in seen
