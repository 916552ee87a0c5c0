"""A stage: a copy that becomes the next version, or nothing."""

from __future__ import annotations

import os

import pytest

from atoll import StoreError
from atoll.codebases import tidying
from atoll.codebases.stage import MovedOn

from .looking import check_store, tree_of


def replace(directory, name, content):
    """As the review gate writes: beside, and then in one step."""
    with open(f"{directory}/.new", "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(f"{directory}/.new", f"{directory}/{name}")


def test_what_is_done_to_a_stage_becomes_the_next_version(codebases, shelf, source, home):
    codebases.create("project", source)
    use = shelf.use("project")
    with shelf.stage_version("project") as stage:
        assert stage.version == 1
        assert tree_of(stage.path) == tree_of(source)
        replace(stage.path, "readme.md", "reviewed\n")
        os.unlink(f"{stage.path}/dangling")
        os.mkdir(f"{stage.path}/made")
        replace(f"{stage.path}/made", "file", "new\n")
        done = stage.commit(1)
    assert (done.version, done.added, done.changed, done.removed) == (2, 2, 1, 1)
    assert codebases.read("project", "readme.md") == b"reviewed\n"
    assert codebases.read("project", "made/file") == b"new\n"
    assert tree_of(use.tree) == tree_of(source), "those who use the version before see nothing of it"
    os.close(use.descriptor)
    tidying.collect(shelf.home)
    check_store(home)


def test_a_stage_without_a_commit_changes_nothing(codebases, shelf, source, home, same):
    made = codebases.create("project", source)
    with shelf.stage_version("project") as stage:
        replace(stage.path, "readme.md", "never\n")
    assert not os.path.exists(stage.path)
    assert codebases.get("project") == made
    assert same("project", source)
    tidying.collect(shelf.home)
    check_store(home)


def test_a_stage_in_which_nothing_was_done_makes_no_version(codebases, shelf, source):
    codebases.create("project", source)
    with shelf.stage_version("project") as stage:
        assert stage.commit(1).version == 1


def test_a_codebase_that_moved_on_is_told_and_stays_as_it_is(codebases, shelf, source):
    codebases.create("project", source)
    with shelf.stage_version("project") as stage:
        replace(stage.path, "readme.md", "mine\n")
        codebases.write("project", "readme.md", "theirs\n")
        with pytest.raises(MovedOn) as caught:
            stage.commit(1)
        assert caught.value.current == 2
        with pytest.raises(MovedOn):
            stage.commit(2)
    assert codebases.read("project", "readme.md") == b"theirs\n"


def test_of_two_stages_at_once_one_is_committed(codebases, shelf, source):
    codebases.create("project", source)
    with shelf.stage_version("project") as one, shelf.stage_version("project") as other:
        replace(one.path, "readme.md", "one\n")
        replace(other.path, "readme.md", "other\n")
        one.commit(1)
        with pytest.raises(MovedOn):
            other.commit(1)
    assert codebases.read("project", "readme.md") == b"one\n"


def test_files_that_are_named_may_be_changed_in_place(codebases, shelf, source):
    codebases.create("project", source)
    use = shelf.use("project")
    with shelf.stage_version("project", touching=["readme.md", "src/run.sh", "no such file"]) as stage:
        with open(f"{stage.path}/readme.md", "a", encoding="utf-8") as file:
            file.write("more\n")
        os.chmod(f"{stage.path}/src/run.sh", 0o700)
        done = stage.commit(1)
    assert (done.version, done.changed) == (2, 2)
    assert codebases.read("project", "readme.md") == b"hello\nmore\n"
    assert {info.path: info.mode for info in codebases.files("project")}["src/run.sh"] == 0o700
    assert tree_of(use.tree) == tree_of(source)
    os.close(use.descriptor)


@pytest.mark.parametrize("change", ["write", "chmod"])
def test_a_shared_file_that_was_changed_in_place_is_found_out(codebases, shelf, source, change):
    codebases.create("project", source)
    with shelf.stage_version("project") as stage:
        if change == "write":
            with open(f"{stage.path}/readme.md", "a", encoding="utf-8") as file:
                file.write("hurt")
        else:
            os.chmod(f"{stage.path}/readme.md", 0o600)
        with pytest.raises(StoreError, match=r"readme\.md was changed in place"):
            stage.commit(1)
    assert codebases.get("project").version == 1


def test_a_stage_outlives_the_version_that_it_came_from(codebases, shelf, source):
    codebases.create("project", source)
    with shelf.stage_version("project") as stage:
        codebases.write("project", "x", b"")
        tidying.collect(shelf.home)
        assert tree_of(stage.path) == tree_of(source)


def test_pipes_in_a_stage_are_left_out_and_named(codebases, shelf, source):
    codebases.create("project", source)
    with shelf.stage_version("project") as stage:
        os.mkfifo(f"{stage.path}/pipe")
        replace(stage.path, "x", "x")
        assert stage.commit(1).skipped == ("pipe",)
