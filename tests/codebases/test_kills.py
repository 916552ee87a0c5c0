"""Whatever a process is killed at, what was there is there, and the next call removes what it left."""

from __future__ import annotations

import itertools
import os
import pathlib
import random
import shutil
import signal
import tempfile

import pytest
from tests import thorough

from atoll import CodebaseNotFound, Codebases, InvalidInput
from atoll.codebases import tidying
from atoll.codebases.shelf import Shelf

from . import child
from .looking import blobs, check_store, tree_of, versions


@pytest.fixture
def tmp_path():
    """Where a thousand fsyncs cost nothing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield pathlib.Path(path)


@pytest.fixture
def other(source, tmp_path):
    """What the source becomes."""
    path = tmp_path / "other"
    shutil.copytree(source, path, symlinks=True)
    (path / "readme.md").write_text("changed\n")
    (path / "new").mkdir()
    (path / "new" / "file").write_text("new\n")
    (path / "dangling").unlink()
    return path


def steps():
    """Every step, as long as there are more, or a sample of them."""
    return (step for step in itertools.count(1) if thorough.is_chosen(step, every=5))


def test_an_upload_is_whole_or_not_there_whichever_step_it_is_killed_at(codebases, source, other, home, same):
    made = codebases.create("project", source)
    for step in steps():
        killed = child.killed_at(step, Codebases().upload, "project", other)
        now = codebases.get("project")
        if now.version > made.version:
            assert same("project", other, times=False), step
        else:
            assert now == made, step
            assert same("project", source), step
        # The next call, whatever it is about, sweeps, and makes a version as if nothing had happened.
        assert codebases.upload("project", source).version == codebases.get("project").version
        tidying.collect(Shelf().home)
        check_store(home)
        assert same("project", source, times=False), step
        made = codebases.get("project")
        assert versions(home, made.id) == [made.version], step
        if not killed:
            break
    assert step > 40, "the steps are seen"


def test_a_create_is_whole_or_not_there(codebases, source, home, same):
    for step in steps():
        killed = child.killed_at(step, Codebases().create, "project", source)
        found = codebases.list()
        if found:
            assert same("project", source), step
            codebases.delete("project")
        tidying.collect(Shelf().home)
        check_store(home)
        assert [name for name in os.listdir(home / "codebases") if name.startswith("cb-")] == []
        if not killed:
            break
    assert found, "the last was not killed"


def test_a_delete_is_done_or_not(codebases, source, home, same):
    for step in steps():
        made = codebases.create("project", source)
        killed = child.killed_at(step, Codebases().delete, "project")
        try:
            assert codebases.get("project") == made
            assert same("project", source), step
            codebases.delete("project")
        except CodebaseNotFound:
            pass
        tidying.collect(Shelf().home)
        check_store(home)
        assert not (home / "codebases" / made.id).exists(), step
        if not killed:
            break


def apply_to_stage(name):
    with Shelf().stage_version(name, touching=["readme.md"]) as stage:
        with open(f"{stage.path}/readme.md", "a", encoding="utf-8") as file:
            file.write("more\n")
        stage.commit(stage.version)


def test_a_commit_is_whole_or_not_there(codebases, source, home, same):
    made = codebases.create("project", source)
    for step in steps():
        killed = child.killed_at(step, apply_to_stage, "project")
        now = codebases.get("project")
        expected = b"hello\nmore\n" if now.version > made.version else b"hello\n"
        assert codebases.read("project", "readme.md") == expected, step
        codebases.upload("project", source)
        tidying.collect(Shelf().home)
        check_store(home)
        assert same("project", source, times=False), step
        made = codebases.get("project")
        if not killed:
            break
    assert now.version > 1


def test_a_garbage_collection_removes_nothing_that_is_needed_whichever_step_it_is_killed_at(
    codebases, shelf, source, other, home, same
):
    codebases.create("project", source)
    for step in steps():
        use = shelf.use("project")
        old = tree_of(use.tree)
        for directory in (other, source):
            codebases.upload("project", directory)
        killed = child.killed_at(step, lambda: tidying.collect(Shelf().home))
        assert same("project", source, times=False), step
        assert tree_of(use.tree) == old
        os.close(use.descriptor)
        tidying.collect(Shelf().home)
        check_store(home)
        if not killed:
            break


@pytest.mark.slow
def test_many_processes_killed_at_random_lose_nothing(codebases, source, other, home, same):
    """No step is chosen: the kernel may be anywhere."""
    made = codebases.create("project", source)
    dice = random.Random(20)
    for turn in range(thorough.amount(25, 8)):
        pids = [child.run(Codebases().upload, "project", directory) for directory in (source, other, source)]
        child.ended(child.run(_work_for, dice.random() * 0.03))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            child.ended(pid)
        now = codebases.get("project")
        assert now.version >= made.version
        assert same("project", source, times=False) or same("project", other, times=False), turn
        made = now
    codebases.upload("project", other)
    tidying.collect(Shelf().home)
    check_store(home)
    assert same("project", other, times=False)


def _work_for(seconds):
    import time

    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_after_the_machine_went_down_files_in_no_version_are_not_trusted(codebases, source, home, same):
    """A file whose name was written and whose content was not: the next upload of that content must not use it."""
    seen = 0
    for step in steps():
        codebases.create("project")
        killed = child.killed_at(step, Codebases().upload, "project", source)
        if killed and codebases.get("project").version == 0:
            for path in blobs(home):
                os.truncate(path, 0)
                seen += 1
            (home / "codebases" / "boot").write_text("an earlier one")
            codebases.upload("project", source)
            assert same("project", source), step
        codebases.delete("project")
        if not killed:
            break
    assert seen, "the control: something was stored and hurt"


def test_a_name_taken_by_a_killed_create_is_free(codebases, source):
    assert child.killed_at(20, Codebases().create, "project", source)
    codebases.create("project", source)
    with pytest.raises(InvalidInput, match="already"):
        codebases.create("project", source)
