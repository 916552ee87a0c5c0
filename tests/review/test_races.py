"""Somebody swaps things while a diff or an apply is at work: nothing outside the source is read or touched, and nothing
that was not looked at is overwritten. Points of the apply say when; nobody sleeps."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import threading

import pytest

from atoll import FileError
from atoll.review import apply, applying, changes, points

from .overlays import IN_MEMORY, Overlay, place, read, snapshot
from .test_apply import assert_clean

EACH_POINT = [
    "journal", "staging", "stage", "commit", "drop d/e/gone", "about to drop d/e/gone", "swap d/f", "about to swap d/f",
    "swap d/e/f", "about to swap d/e/f", "swap other/f", "put d/new", "put d/e/new", "all steps", "done",
]  # fmt: skip


@pytest.fixture
def both():
    """A source and a place outside that looks like a part of it."""
    with Overlay(where=IN_MEMORY) as overlay:
        for name in ("d/f", "d/gone", "d/e/f", "d/e/gone", "other/f"):
            overlay.in_source(name, "0")
        for name in ("f", "gone", "e/f", "e/gone"):
            place(overlay.outside, name, "0")
        overlay.start()
        for name in ("d/f", "d/new", "d/e/f", "d/e/new", "other/f"):
            overlay.in_merged(name, "1")
        for name in ("d/gone", "d/e/gone"):
            os.unlink(overlay.in_merged(name))
        yield overlay
    points.hook = None


def once(at, act):
    """A hook that acts at the first point of that name."""
    done = []

    def hook(name):
        if name == at and not done:
            done.append(name)
            act()

    points.hook = hook
    return done


def swap_for_link(overlay):
    os.rename(overlay.in_source("d"), overlay.in_source("was-d"))
    # Relative, so that it stays on one mount.
    os.symlink("../outside", overlay.in_source("d"))


@pytest.mark.parametrize("way", ["ask", "take"])
@pytest.mark.parametrize("point", EACH_POINT)
def test_a_directory_of_the_source_becomes_a_link_during_an_apply(both, point, way):
    before = snapshot(both.outside)
    reached = once(point, lambda: swap_for_link(both))
    apply(both.stage, on_conflict=way)
    assert reached
    assert snapshot(both.outside) == before
    assert os.path.islink(both.in_source("d")) or way == "take"
    assert_clean(both)


def test_without_a_swap_the_same_apply_reaches_the_directory(both):
    apply(both.stage)
    assert snapshot(both.in_source("d")) == snapshot(both.in_merged("d"))


def test_a_directory_that_is_a_link_between_diff_and_apply_is_not_followed(both):
    reviewed = changes(both.stage)
    before = snapshot(both.outside)
    swap_for_link(both)
    done = apply(both.stage, on_conflict="keep", reviewed=reviewed)
    assert snapshot(both.outside) == before
    assert "other/f" in done.applied
    assert not any(path.startswith("d") for path in done.applied)


@pytest.mark.parametrize("point", EACH_POINT)
def test_a_file_of_the_source_becomes_a_link_during_an_apply(both, point):
    def swap():
        os.unlink(both.in_source("d/f"))
        os.symlink(f"{both.outside}/f", both.in_source("d/f"))

    before = snapshot(both.outside)
    reached = once(point, swap)
    apply(both.stage, on_conflict="take")
    assert reached
    assert snapshot(both.outside) == before
    assert_clean(both)


@pytest.mark.parametrize("point", ["commit", "swap d/f", "put d/new", "drop d/gone"])
def test_a_directory_that_is_moved_out_of_the_source_comes_back_unchanged(both, point):
    """The step works in a directory that was moved away just before: it is undone there."""
    inside = snapshot(both.in_source("d"))
    away = os.path.join(both.home, "away")
    reached = once(point, lambda: os.rename(both.in_source("d"), away))
    apply(both.stage, on_conflict="keep")
    assert reached
    assert snapshot(away) == inside
    assert_clean(both)


@pytest.mark.parametrize("point", ["staging", "stage", "commit", "swap d/f"])
def test_a_write_of_the_host_during_an_apply_is_not_lost(both, point):
    reached = once(point, lambda: both.in_source("d/f", "from the host"))
    done = apply(both.stage)
    assert reached
    assert read(both.in_source("d/f")) == b"from the host"
    assert list(done.conflicts) == ["d/f"]
    assert done.applied == ()
    assert_clean(both)


@pytest.mark.parametrize(("point", "path"), [("about to swap d/f", "d/f"), ("about to drop d/gone", "d/gone")])
def test_a_file_that_is_replaced_just_before_its_turn_is_put_back(both, point, path):
    """The step has been done when it is seen that another file was there."""

    def replace():
        both.in_source("fresh", "from the host")
        os.rename(both.in_source("fresh"), both.in_source(path))

    reached = once(point, replace)
    done = apply(both.stage)
    assert reached
    assert read(both.in_source(path)) == b"from the host"
    assert (done.applied, list(done.conflicts)) == ((), [path])


def test_a_change_that_only_the_kernels_time_tells_is_seen(both):
    """The host changes bits while the content is being copied."""
    reached = once("stage", lambda: os.chmod(both.in_source("d/f"), 0o600))
    done = apply(both.stage)
    assert reached
    assert (done.applied, list(done.conflicts)) == ((), ["d/f"])
    assert os.stat(both.in_source("d/f")).st_mode & 0o777 == 0o600


def test_a_source_that_never_holds_still_is_told_and_left_clean(both):
    count = iter(range(100))

    def hook(name):
        if name == "staging":
            both.in_source("d/f", f"from the host {next(count)}")

    points.hook = hook
    done = apply(both.stage, on_conflict="take")
    assert done == ((), {"d/f": "It changes in the source while it is applied."}, {})
    assert read(both.in_source("d/f")) == b"from the host 2"
    assert_clean(both)


def test_the_workspace_becomes_a_link_during_an_apply(both):
    """The hostile side swaps a directory for a link to the host, after it was judged."""
    secret = os.path.join(both.outside, "new")
    with open(secret, "w") as file:
        file.write("host secret")

    def swap():
        shutil.rmtree(both.in_merged("d"))
        os.symlink(both.outside, both.in_merged("d"))

    reached = once("staging", swap)
    done = apply(both.stage)
    assert reached
    assert b"host secret" not in {read(os.path.join(both.source, path)) for path in ("other/f",)}
    assert not os.path.exists(both.in_source("d/new"))
    assert done.rejected == dict.fromkeys(["d/e/f", "d/e/new", "d/f", "d/new"], "It changes while it is applied.")


def test_the_workspace_swaps_contents_between_the_judgement_and_the_copy(both):
    reviewed = changes(both.stage)
    reached = once("staging", lambda: both.in_merged("d/f", "evil"))
    done = apply(both.stage, reviewed=reviewed)
    assert reached
    assert done.rejected == {"d/f": "It changes while it is applied."}
    assert read(both.in_source("d/f")) == b"0"


@contextlib.contextmanager
def busy(act):
    """Another thread does something over and over."""
    stop = threading.Event()

    def run():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_the_workspace_flips_between_a_file_and_a_link_to_the_host(both):
    """A few hundred diffs and applies: the secret is in none of them, and the control is."""
    secret = os.path.join(both.outside, "secret")
    with open(secret, "w") as file:
        file.write("host secret\n")
    path = both.in_merged("flip")

    def flip():
        for make in (lambda: os.symlink(secret, f"{path}.1"), lambda: both.in_merged("flip.1", "harmless\n")):
            make()
            os.rename(f"{path}.1", path)

    links = 0
    with busy(flip):
        for _ in range(5000):
            found = changes(both.stage, paths=["flip"])
            links += [change.type for change in found] == ["symlink"]
            assert "host secret" not in repr(found)
            apply(both.stage, ["flip"], on_conflict="take")
            there = both.in_source("flip")
            assert not os.path.islink(there)
            assert not os.path.exists(there) or read(there) == b"harmless\n"
            if links >= 50 and os.path.exists(there):
                break
    assert links >= 50, "the link must have been seen"
    assert os.path.exists(there), "and the file must have come over"


def test_the_source_flips_between_a_directory_and_a_link(both):
    """Another process of the host, not a hostile one: nothing outside changes whenever it happens."""
    before = snapshot(both.outside)
    here, away, link = both.in_source("d"), both.in_source("was-d"), both.in_source("link")

    def flip():
        if not os.path.islink(link) and not os.path.islink(here):
            os.symlink("../outside", link)
        os.rename(here, away)
        os.rename(link, here)
        os.rename(here, link)
        os.rename(away, here)

    with busy(flip):
        for number in range(100):
            both.in_merged("d/f", str(number))
            both.in_merged("d/new", str(number))
            with contextlib.suppress(FileError):
                apply(both.stage, on_conflict="take")
    assert snapshot(both.outside) == before


def append(overlay, name, count):
    """What one sandbox does in a process of its own: change its file, apply, and again."""
    for number in range(count):
        overlay.in_merged(name, f"{name} {number}")
        done = apply(overlay.stage, [name])
        assert done.applied == (name,), done


def test_two_sandboxes_apply_at_once():
    """Each has its own files: all of them arrive, none is torn, and nothing is left over."""
    with Overlay(where=IN_MEMORY) as one, Overlay(where=IN_MEMORY) as two:
        two.source, two.state = one.source, one.state
        one.start()
        two.start()
        fork = multiprocessing.get_context("fork")
        workers = [fork.Process(target=append, args=(each, name, 40)) for each, name in ((one, "a"), (two, "b"))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert {name: read(one.in_source(name)) for name in ("a", "b")} == {"a": b"a 39", "b": b"b 39"}
        assert_clean(one)


def test_a_file_that_never_holds_still_is_told_and_not_applied(both):
    """Its content is not steady, so nobody could say what was reviewed."""
    path = both.in_merged("busy", "x" * 3_000_000)
    fd = os.open(path, os.O_WRONLY)
    counter = iter(range(10**9))
    try:
        with busy(lambda: os.pwrite(fd, str(next(counter)).encode(), 0)):
            (change,) = changes(both.stage, paths=["busy"])
            assert change.path == "busy"
            done = apply(both.stage, ["busy"], reviewed=[change])
    finally:
        os.close(fd)
    assert done.applied == ()
    assert list(done.rejected) == ["busy"]
    assert apply(both.stage, ["busy"]).applied == ("busy",)


def test_parts_of_a_repository_that_are_away_while_others_are_judged(monkeypatch):
    """Neither is trusted to be missing: from inside a sandbox, which hears by inotify how far an apply is, this made
    a directory of the source a repository whose configuration has commands, at the first try."""
    parts = ("HEAD", "config", "objects/k", "refs/k")
    judge = applying.refusal

    def judged(look, difference, *args, **keywords):
        name = "objects" if difference.change.path.startswith("x/HEAD") else "HEAD"
        os.rename(overlay.in_merged(f"x/{name}"), overlay.in_merged(f"away-{name}"))
        try:
            return judge(look, difference, *args, **keywords)
        finally:
            os.rename(overlay.in_merged(f"away-{name}"), overlay.in_merged(f"x/{name}"))

    for attack in (False, True):
        with Overlay(where=IN_MEMORY) as overlay:
            overlay.start()
            for name in (*parts, "plain"):
                overlay.in_merged(f"x/{name}", "")
            monkeypatch.setattr(applying, "refusal", judged if attack else judge)
            done = apply(overlay.stage)
            assert {"x/HEAD", "x/objects", "x/config"} <= set(done.rejected)
            assert "x/plain" in done.applied
            assert not os.path.exists(overlay.in_source("x/HEAD"))
