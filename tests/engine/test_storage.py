"""The files of a sandbox on a disk of their own: bounded, kept over a stop, and filled with what it begins with."""

from __future__ import annotations

import os
import traceback

import pytest

from atoll.engine.steward.storage import Storage
from atoll.engine.steward.wall import StartFailed

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a disk"),
]
SIZE = 4 << 20


@pytest.fixture
def box(tmp_path):
    (tmp_path / "box" / "files").mkdir(parents=True)
    return str(tmp_path / "box")


def apart(action):
    """In a process of its own: a storage takes its process's mounts away."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent sees that it failed
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def storage(box, size=SIZE):
    return Storage(box, size, f"{os.path.dirname(box)}/disks")


def test_it_is_full_when_it_is_full_and_nobody_else_sees_it(box):
    def fill():
        disk = storage(box)
        disk.open()
        fd = os.open(f"{box}/files/large", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError, match="No space left"):
            sum(iter(lambda: os.write(fd, bytes(1 << 20)), 0))
        os.close(fd)
        assert disk.used() > SIZE // 2
        disk.close()

    apart(fill)
    assert os.listdir(f"{box}/files") == []


def test_what_was_written_is_there_again(box):
    def write():
        disk = storage(box)
        disk.open()
        with open(f"{box}/files/kept", "w", encoding="ascii") as file:
            file.write("kept")
        disk.close()

    def read():
        disk = storage(box)
        disk.open()
        with open(f"{box}/files/kept", encoding="ascii") as file:
            assert file.read() == "kept"

    apart(write)
    apart(read)


def test_it_begins_with_what_lies_there_in_place_of_what_it_had(box):
    test_what_was_written_is_there_again(box)
    with open(f"{box}/files/other", "w", encoding="ascii") as file:
        file.write("other")

    def look():
        disk = storage(box)
        disk.open()
        assert os.listdir(f"{box}/files") == ["other"]
        disk.close()
        assert os.listdir(f"{box}/files") == []

    apart(look)


def test_what_does_not_fit_is_told(box):
    with open(f"{box}/files/large", "wb") as file:
        file.write(os.urandom(2 * SIZE))

    def look():
        with pytest.raises(StartFailed, match="does not fit"):
            storage(box).open()

    apart(look)


def test_without_a_size_it_is_a_plain_directory(box):
    def write():
        disk = storage(box, None)
        disk.open()
        with open(f"{box}/files/plain", "w", encoding="ascii") as file:
            file.write("plain")
        assert disk.used() is None

    apart(write)
    assert os.listdir(f"{box}/files") == ["plain"]
