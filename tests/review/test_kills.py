"""SIGKILL at every point of an apply, of its rolling back and of its recovery: afterwards all of it is in the source,
or nothing, and no trace of it is left."""

from __future__ import annotations

import itertools
import os
import random
import signal

import pytest
from tests import thorough

from atoll import StoreError
from atoll.guest import beneath
from atoll.review import apply, changes, points, recover

from .overlays import IN_MEMORY, Overlay, describe, read, snapshot
from .test_apply import assert_clean


@pytest.fixture(autouse=True)
def no_hook():
    yield
    points.hook = None


def prepared():
    """An overlay whose changes need every kind of step."""
    overlay = Overlay(where=IN_MEMORY)
    for name in ("modified", "deep/modified", "gone", "dir/a", "dir/sub/b", "turns", "mode", "same"):
        overlay.in_source(name, "0")
    os.symlink("same", overlay.in_source("link"))
    overlay.start()
    for name in ("modified", "deep/modified", "new", "more/deep/new"):
        overlay.in_merged(name, "1")
    overlay.shell("rm -r gone dir turns; mkdir turns empty; echo 1 > turns/into; echo 1 > dir; ln -sfn new link")
    os.chmod(overlay.in_merged("mode"), 0o755)
    return overlay


def killed_at(number, work):
    """Do some work in a child that is killed at a point; whether it got there."""
    child = os.fork()
    if child == 0:
        left = number

        def hook(name):
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        points.hook = hook
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "it ended with an error"
    return status == signal.SIGKILL


def counted(work):
    names = []
    points.hook = names.append
    work()
    points.hook = None
    return names


def assert_all_or_none(overlay, before, after):
    assert snapshot(overlay.source) in (before, after)
    assert_clean(overlay)


@pytest.fixture(params=["exchange", "no exchange"])
def renames(request, monkeypatch):
    """With renames that exchange and refuse to replace, and as on a machine or a file system that has neither."""
    if request.param == "no exchange":
        monkeypatch.setattr(beneath, "_RENAMEAT2", {})


def test_an_apply_can_be_killed_at_every_point(renames):
    with prepared() as overlay:
        names = counted(lambda: apply(overlay.stage))
    kinds = {name.split()[0] for name in names}
    assert {"journal", "staging", "stage", "commit", "put", "swap", "drop", "mode", "done", "clear", "cleared"} <= kinds
    outcomes = set()
    for number in thorough.some(range(len(names)), every=3):
        with prepared() as overlay:
            before, after = snapshot(overlay.source), snapshot(overlay.merged)
            assert killed_at(number, lambda overlay=overlay: apply(overlay.stage)), names[number]
            recover(overlay.source, overlay.state)
            assert_all_or_none(overlay, before, after)
            outcomes.add(snapshot(overlay.source) == after)
            done = apply(overlay.stage)
            assert (done.conflicts, done.rejected) == ({}, {}), names[number]
            assert snapshot(overlay.source) == after
            assert_clean(overlay)
    assert outcomes == {True, False}, "some are finished, some rolled back"


def test_the_recovery_can_be_killed_too():
    """Random pairs of points; the last recovery is the diff's own."""
    chance = random.Random(thorough.amount(4, thorough.SEED))
    with prepared() as overlay:
        names = counted(lambda: apply(overlay.stage))
    first = names.index("journal") + 1
    for _ in range(thorough.amount(100, 20)):
        with prepared() as overlay:
            before, after = snapshot(overlay.source), snapshot(overlay.merged)
            killed_at(chance.randrange(first, len(names)), lambda overlay=overlay: apply(overlay.stage))
            for _ in range(4):
                work = lambda overlay=overlay: recover(overlay.source, overlay.state)  # noqa: E731
                if not killed_at(chance.randrange(12), work):
                    break
            found = changes(overlay.stage)
            assert_all_or_none(overlay, before, after)
            assert (found == []) == (snapshot(overlay.source) == after)


def moving(overlay, at):
    """A hook under which the source's file changes in the middle of the steps."""

    def hook(name):
        if name == at and not os.path.exists(f"{overlay.home}/moved"):
            os.close(os.open(f"{overlay.home}/moved", os.O_CREAT))
            with open(overlay.in_source("modified"), "w") as file:
                file.write("host")

    return hook


def test_a_source_that_changes_in_the_middle_rolls_everything_back():
    """All the steps before the one that finds it are undone; asked again, it is a conflict and nothing is applied."""
    with prepared() as overlay:
        before, after = snapshot(overlay.source), snapshot(overlay.merged)
        points.hook = moving(overlay, "swap deep/modified")
        done = apply(overlay.stage)
        assert list(done.conflicts) == ["modified"]
        assert done.applied == ()
        changed = snapshot(overlay.source)
        assert changed.pop(b"modified") != before.pop(b"modified")
        assert changed == before
        assert_clean(overlay)
        done = apply(overlay.stage, on_conflict="take")
        assert snapshot(overlay.source) == after


def test_the_rolling_back_can_be_killed_at_every_point(renames):
    def work(overlay):
        mover = moving(overlay, "swap deep/modified")
        outer = points.hook

        def both(name):
            mover(name)
            if outer is not None:
                outer(name)

        points.hook = both
        try:
            apply(overlay.stage)
        finally:
            points.hook = outer

    with prepared() as overlay:
        names = []
        points.hook = names.append
        work(overlay)
        points.hook = None
    assert any(name.startswith("undo ") for name in names)
    for number in thorough.some(range(names.index("swap deep/modified"), len(names)), every=3):
        with prepared() as overlay:
            before = snapshot(overlay.source)
            killed_at(number, lambda overlay=overlay: work(overlay))
            recover(overlay.source, overlay.state)
            after = snapshot(overlay.source)
            assert after.pop(b"modified") != before.pop(b"modified")
            assert after == before, names[number]
            assert_clean(overlay)


def test_a_host_that_goes_on_after_the_kill_keeps_what_it_did(renames):
    """Killed in the middle, then the host changes one of the files: that stays, whatever the recovery does."""
    with prepared() as overlay:
        names = counted(lambda: apply(overlay.stage))
    numbers = range(names.index("commit"), names.index("done") + 1)
    for number, victim in thorough.some(itertools.product(numbers, ("modified", "new", "gone")), every=4):
        with prepared() as overlay:
            killed_at(number, lambda overlay=overlay: apply(overlay.stage))
            overlay.in_source(victim, "host")
            recover(overlay.source, overlay.state)
            with open(overlay.in_source(victim)) as file:
                assert file.read() == "host", (names[number], victim)
            assert_clean(overlay)


def test_what_cannot_be_put_back_is_kept_and_told():
    """Killed in the middle, then the host moves a directory away: what was taken from there is not thrown away."""
    with prepared() as overlay:
        names = counted(lambda: apply(overlay.stage))
    with prepared() as overlay:
        killed_at(names.index("swap modified"), lambda: apply(overlay.stage))
        os.rename(overlay.in_source("deep"), overlay.in_source("away"))
        overlay.in_source("modified", "host, so that it cannot be finished")
        with pytest.raises(StoreError, match="deep/modified has been moved away since"):
            changes(overlay.stage)
        (kept,) = (name for name in os.listdir(overlay.source) if name.startswith(".atoll"))
        original = describe(overlay.in_source("same"))
        assert original in snapshot(overlay.in_source(kept)).values()
        assert read(overlay.in_source("gone")) == b"0"
        assert changes(overlay.stage)


def test_a_journal_that_makes_no_sense_is_told():
    with prepared() as overlay:
        killed_at(6, lambda: apply(overlay.stage))
        (journal,) = (name for name in os.listdir(overlay.state) if name.endswith(".journal"))
        with open(os.path.join(overlay.state, journal), "w") as file:
            file.write("{}")
        with pytest.raises(StoreError, match="makes no sense"):
            changes(overlay.stage)


def test_a_source_that_was_replaced_after_the_kill_is_left_alone():
    with prepared() as overlay:
        killed_at(12, lambda: apply(overlay.stage))
        os.rename(overlay.source, overlay.source + "-away")
        os.mkdir(overlay.source)
        overlay.in_source("mine", "x")
        recover(overlay.source, overlay.state)
        assert os.listdir(overlay.source) == ["mine"]
        os.unlink(overlay.in_source("mine"))
        os.rmdir(overlay.source)
        os.rename(overlay.source + "-away", overlay.source)
