"""Many processes and threads at once, and what is in use is never removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from functools import partial

import pytest

from atoll import CodebaseNotFound, Codebases, InvalidInput
from atoll.codebases import locks, tidying
from atoll.codebases.blobs import Blobs
from atoll.codebases.manifest import Entry
from atoll.codebases.shelf import Shelf

from . import child
from .looking import blobs, check_store, current, tree_of, versions

HOLD = """
import os, sys
from atoll.codebases.shelf import Shelf
use = Shelf().use(sys.argv[1])
print(use.version, flush=True)
sys.stdin.read()
print(sorted(os.listdir(use.tree)), flush=True)
"""


def at_once(*functions):
    """Run them in threads that start together; gives what they give or raise."""
    barrier = threading.Barrier(len(functions))
    outcomes = [None] * len(functions)

    def attempt(index, function):
        barrier.wait()
        try:
            outcomes[index] = function()
        except Exception as error:  # noqa: BLE001  # compared by the test
            outcomes[index] = error

    threads = [threading.Thread(target=attempt, args=each) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_two_processes_that_upload_at_once_make_two_versions(codebases, source, tmp_path, home, same):
    codebases.create("project")
    other = tmp_path / "other"
    shutil.copytree(source, other, symlinks=True)
    (other / "more").write_text("x")
    (source / "less").write_text("y")
    for turn in range(1, 11):
        (other / "more").write_text(f"x{turn}")
        (source / "less").write_text(f"y{turn}")
        pids = [child.run(Codebases().upload, "project", directory) for directory in (source, other)]
        assert [child.ended(pid) for pid in pids] == [0, 0]
        assert codebases.get("project").version == 2 * turn
        assert same("project", source, times=False) or same("project", other, times=False)
    tidying.collect(Shelf().home)
    check_store(home)


def test_uploads_to_different_directories_at_once_lose_nothing(codebases, source, tmp_path, home):
    codebases.create("project", source)
    parts = []
    for number in range(6):
        part = tmp_path / f"part{number}"
        part.mkdir()
        (part / "file").write_text(str(number))
        parts.append(part)
    pids = [child.run(lambda part=part: Codebases().upload("project", part, at=f"parts/{part.name}")) for part in parts]
    pids += [child.run(Codebases().write, "project", f"written{number}", b"w") for number in range(6)]
    assert {child.ended(pid) for pid in pids} == {0}
    assert codebases.get("project").version == 13
    for number in range(6):
        assert codebases.read("project", f"parts/part{number}/file") == b"%d" % number
        assert codebases.read("project", f"written{number}") == b"w"
    assert codebases.read("project", "readme.md") == b"hello\n"
    tidying.collect(Shelf().home)
    check_store(home)


def test_of_many_who_take_a_name_at_once_one_has_it(codebases, source, home):
    outcomes = at_once(*[lambda: Codebases().create("project", source)] * 8)
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(errors) == 7
    assert [error for error in errors if not isinstance(error, InvalidInput)] == []
    assert len(codebases.list()) == 1
    tidying.collect(Shelf().home)
    check_store(home)


def test_a_blob_that_is_stored_again_while_it_is_linked_is_there_all_the_time(home, tmp_path):
    """The kernel refuses to link a file that another has taken the name of since it was looked up."""
    blobs = Blobs(str(home))
    entry = Entry("file", 0o644, 0, 0)

    def store_again():
        while True:
            with blobs._new(stored) as target:
                os.write(target, b"x")

    with blobs.storing():
        stored = blobs.put(entry, b"x")
        storing = [child.run(store_again) for _ in range(2)]
        directory = os.open(tmp_path, os.O_RDONLY)
        try:
            for number in range(20_000):
                blobs.link(stored, directory, str(number))
        finally:
            for pid in storing:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(directory)


def test_a_delete_and_uploads_at_once_end_with_all_or_nothing(codebases, source, home):
    for _ in range(10):
        made = codebases.create("project", source)
        outcomes = at_once(partial(codebases.delete, made), *[partial(codebases.write, made, "x", b"x")] * 3)
        for outcome in outcomes[1:]:
            assert not isinstance(outcome, Exception) or isinstance(outcome, CodebaseNotFound), outcome
        assert codebases.list() == []
    tidying.collect(Shelf().home)
    check_store(home)
    assert [name for name in os.listdir(home / "codebases") if name.startswith("cb-")] == []


def test_garbage_is_collected_while_others_upload_and_read(codebases, source, home, tmp_path):
    """Every version that is published is whole, whoever collects meanwhile."""
    other = tmp_path / "other"
    shutil.copytree(source, other, symlinks=True)
    (other / "src" / "run.sh").write_text("other")
    codebases.create("project", source)
    until = time.monotonic() + 3
    trees = tree_of(source, times=False), tree_of(other, times=False)

    def upload(directory):
        while time.monotonic() < until:
            Codebases().upload("project", directory)

    def collect():
        while time.monotonic() < until:
            tidying.collect(Shelf().home)

    def look():
        shelf = Shelf()
        while time.monotonic() < until:
            use = shelf.use("project")
            assert tree_of(use.tree, times=False) in trees
            os.close(use.descriptor)

    pids = [child.run(upload, source), child.run(upload, other), child.run(collect), child.run(look)]
    assert [child.ended(pid) for pid in pids] == [0, 0, 0, 0]
    assert codebases.get("project").version > 5
    tidying.collect(Shelf().home)
    check_store(home)


def test_a_hundred_sandboxes_keep_the_versions_that_they_use(codebases, shelf, source, home):
    made = codebases.create("project", source)
    held = []
    for number in range(100):
        held.append((shelf.use("project"), number))
        if number % 10 == 9:
            codebases.write("project", "counter", str(number))
    tidying.collect(shelf.home)
    assert versions(home, made.id) == list(range(1, 12))
    for use, number in held:
        path = f"{use.tree}/counter"
        assert os.path.exists(path) == (number >= 10)
        if number >= 10:
            with open(path, encoding="ascii") as file:
                assert int(file.read()) == number // 10 * 10 - 1
    for use, _ in held[5:]:
        os.close(use.descriptor)
    tidying.collect(shelf.home)
    assert versions(home, made.id) == [1, 11]
    for use, _ in held[:5]:
        os.close(use.descriptor)
    tidying.collect(shelf.home)
    assert versions(home, made.id) == [11]
    check_store(home)


def test_another_process_keeps_a_version_until_it_ends_in_any_way(codebases, source, home):
    made = codebases.create("project", source)
    process = child.python(HOLD, made.id)
    assert process.stdout.readline() == "1\n"
    codebases.write("project", "x", b"")
    tidying.collect(Shelf().home)
    assert versions(home, made.id) == [1, 2]
    process.kill()
    process.wait()
    tidying.collect(Shelf().home)
    assert versions(home, made.id) == [2]
    process.stdin.close()
    process.stdout.close()


def test_a_deleted_codebase_stays_for_who_uses_it_and_goes_afterwards(codebases, shelf, source, home):
    made = codebases.create("project", source)
    use = shelf.use("project")
    codebases.delete("project")
    tidying.collect(shelf.home)
    assert codebases.list() == []
    assert tree_of(use.tree) == tree_of(source)
    os.close(use.descriptor)
    tidying.collect(shelf.home)
    assert not (home / "codebases" / made.id).exists()
    assert blobs(home) == []


def test_a_pinned_version_stays_without_any_process(codebases, shelf, source, home):
    made = codebases.create("project", source)
    use = shelf.use("project")
    shelf.pin(use, "sb-one")
    shelf.pin(use, "sb-two")
    os.close(use.descriptor)
    codebases.write("project", "x", b"")
    shelf.unpin(made.id, 1, "sb-one")
    tidying.collect(shelf.home)
    assert versions(home, made.id) == [1, 2]
    with contextlib.closing(_Closing(shelf.use("project", 1))) as again:
        assert tree_of(again.use.tree) == tree_of(source)
    shelf.unpin(made.id, 1, "sb-two")
    shelf.unpin(made.id, 1, "sb-two")
    tidying.collect(shelf.home)
    assert versions(home, made.id) == [2]


class _Closing:
    def __init__(self, use):
        self.use = use

    def close(self):
        os.close(self.use.descriptor)


def test_a_pinned_version_of_a_deleted_codebase_stays(codebases, shelf, source, home):
    made = codebases.create("project", source)
    use = shelf.use("project")
    shelf.pin(use, "sb-one")
    os.close(use.descriptor)
    codebases.delete("project")
    tidying.collect(shelf.home)
    assert tree_of(use.tree) == tree_of(source)
    shelf.unpin(made.id, 1, "sb-one")
    tidying.collect(shelf.home)
    assert not (home / "codebases" / made.id).exists()


def test_a_version_that_was_removed_cannot_be_used(codebases, shelf, source):
    codebases.create("project", source)
    use = shelf.use("project")
    os.close(use.descriptor)
    codebases.write("project", "x", b"")
    with pytest.raises(FileNotFoundError):
        locks.in_use(use.directory)
    fd = locks.in_use(os.path.dirname(current(shelf, "project")))
    os.close(fd)


def test_blobs_of_a_version_in_the_making_are_not_collected(codebases, shelf, source, home, monkeypatch):
    """Somebody collects after the files were stored, and before the tree holds them."""
    from atoll.codebases import shelf as module

    real, counts = module._change, []

    def collect_first(*arguments, **keywords):
        pid = child.run(lambda: tidying.collect(Shelf().home))
        assert child.ended(pid) == 0
        counts.append(len(blobs(home)))
        return real(*arguments, **keywords)

    codebases.create("project")
    monkeypatch.setattr(module, "_change", collect_first)
    codebases.upload("project", source)
    assert counts == [3]
    assert codebases.read("project", "readme.md") == b"hello\n"
