from __future__ import annotations

import os
import shutil
import stat
import tempfile

import pytest

from atoll.errors import StoreError
from atoll.home import make_private, state_dir
from atoll.mcp import begun


@pytest.fixture
def clean(monkeypatch):
    for name in ("ATOLL_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_atoll_home_comes_first_then_xdg_then_the_home_directory(clean, tmp_path):
    (tmp_path / "home").mkdir()
    clean.setenv("HOME", str(tmp_path / "home"))
    assert state_dir() == str(tmp_path / "home/.local/state/atoll")
    clean.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_dir() == str(tmp_path / "xdg/atoll")
    clean.setenv("ATOLL_HOME", str(tmp_path / "own"))
    assert state_dir() == str(tmp_path / "own")


def test_a_home_directory_that_is_not_there_is_not_made(clean, tmp_path):
    clean.setenv("HOME", str(tmp_path / "missing"))
    with pytest.raises(StoreError, match=r"home directory .*/missing does not exist.*Set ATOLL_HOME"):
        state_dir()
    assert os.listdir(tmp_path) == []


def test_an_empty_variable_counts_as_unset(clean, tmp_path):
    clean.setenv("ATOLL_HOME", "")
    clean.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_dir() == str(tmp_path / "atoll")


def test_it_is_made_private_whatever_the_umask(clean, tmp_path):
    clean.setenv("ATOLL_HOME", str(tmp_path / "a/b/c"))
    old = os.umask(0)
    try:
        path = state_dir()
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


def test_asking_twice_is_fine(clean, tmp_path):
    clean.setenv("ATOLL_HOME", str(tmp_path / "a"))
    assert state_dir() == state_dir()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o755, 0o711, 0o750, 0o704])
def test_a_directory_that_others_can_use_is_refused(clean, tmp_path, mode):
    """It may be a place that others need, such as /var/lib: closing it is not ours to decide."""
    clean.setenv("ATOLL_HOME", str(tmp_path))
    (tmp_path / "something").touch()
    tmp_path.chmod(0o700)
    assert state_dir() == str(tmp_path)
    tmp_path.chmod(mode)
    with pytest.raises(StoreError, match=r"Others can use .*chmod 700"):
        state_dir()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o711])
def test_an_empty_one_is_closed_to_others(clean, tmp_path, mode):
    clean.setenv("ATOLL_HOME", str(tmp_path))
    tmp_path.chmod(mode)
    assert state_dir() == str(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def _others_read(path) -> bool:
    """Whether another user can read a file: really, by a process of theirs."""
    reader = os.fork()
    if reader == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with open(path, "rb") as file:
                os._exit(0 if file.read() else 1)
        except OSError:
            os._exit(1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_reads_nothing_of_it(clean, tmp_path):
    top = tempfile.mkdtemp(dir="/tmp")
    try:
        os.chmod(top, 0o755)
        home = os.path.join(top, "state")
        clean.setenv("ATOLL_HOME", home)
        os.mkdir(home)
        os.chmod(home, 0o755)
        before = os.umask(0)
        try:
            begun._write({"tr-0": "space"})
            make_private(os.path.join(home, "bwrap/boxes/one"))
        finally:
            os.umask(before)
        kept = os.path.join(home, "mcp-agents.json")
        with open(os.path.join(home, "plain"), "w") as file:
            file.write("control")
        os.chmod(file.name, 0o644)
        assert not _others_read(file.name)
        assert not _others_read(kept)
        os.chmod(home, 0o755)
        assert _others_read(file.name)
        assert not _others_read(kept)
        assert [stat.S_IMODE(os.stat(os.path.join(home, name)).st_mode) for name in ("bwrap", "bwrap/boxes")] == [
            0o700
        ] * 2
    finally:
        shutil.rmtree(top)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_someone_else_is_refused(clean, tmp_path):
    clean.setenv("ATOLL_HOME", str(tmp_path))
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(StoreError, match="belongs to user 12345"):
        state_dir()


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o772])
def test_one_whose_parents_others_can_write_to_is_refused(clean, tmp_path, mode):
    """They could rename it, and put another in its place."""
    above = tmp_path / "above"
    clean.setenv("ATOLL_HOME", str(above / "between" / "state"))
    above.mkdir()
    if os.geteuid() == 0:
        os.chown(above, -1, 12345)
    above.chmod(mode)
    if os.geteuid() == 0 or mode & 0o002:
        with pytest.raises(StoreError, match=rf"others can write to {above} \(mode {mode:o}\).*Set ATOLL_HOME"):
            state_dir()
    above.chmod(mode | stat.S_ISVTX)
    assert state_dir() == str(above / "between" / "state")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_one_below_a_directory_of_someone_else_is_refused(clean, tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    os.chown(above, 12345, -1)
    clean.setenv("ATOLL_HOME", str(above / "state"))
    with pytest.raises(StoreError, match=f"{above} belongs to user 12345.*Set ATOLL_HOME"):
        state_dir()
    os.chown(above, 0, -1)
    assert state_dir() == str(above / "state")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_links_on_the_way_are_followed_and_judged(clean, tmp_path):
    for name in ("real", "theirs"):
        (tmp_path / name / "deep").mkdir(parents=True)
    os.chown(tmp_path / "theirs", 12345, -1)
    (tmp_path / "link").symlink_to("real/deep/../deep/")
    clean.setenv("ATOLL_HOME", str(tmp_path / "link" / "state"))
    assert state_dir() == str(tmp_path / "link" / "state")
    os.chown(tmp_path / "link", 12345, -1, follow_symlinks=False)
    assert state_dir(), "looked at once in a process"
    clean.setenv("ATOLL_HOME", str(tmp_path / "link" / "other"))
    with pytest.raises(StoreError, match=f"{tmp_path}/link belongs to user 12345"):
        state_dir()
    (tmp_path / "on").symlink_to(tmp_path / "theirs" / "deep")
    clean.setenv("ATOLL_HOME", str(tmp_path / "on"))
    with pytest.raises(StoreError, match=f"{tmp_path}/theirs belongs to user 12345"):
        state_dir()


@pytest.mark.parametrize("name", ["ATOLL_HOME", "XDG_STATE_HOME"])
def test_a_relative_path_is_refused(clean, name):
    clean.setenv(name, "some/where")
    with pytest.raises(StoreError, match=f"{name} is 'some/where', which is relative"):
        state_dir()


def test_a_file_in_its_place_is_refused(clean, tmp_path):
    (tmp_path / "file").touch()
    clean.setenv("ATOLL_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="is no directory"):
        state_dir()


def test_a_place_where_nothing_can_be_made_is_explained(clean, tmp_path):
    (tmp_path / "file").touch()
    clean.setenv("ATOLL_HOME", str(tmp_path / "file/below"))
    with pytest.raises(StoreError, match=r"cannot be made: .*Set ATOLL_HOME"):
        state_dir()
