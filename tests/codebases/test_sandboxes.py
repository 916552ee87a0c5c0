"""Sandboxes that are made from codebases: many at once, each with a layer of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading

import pytest

from atoll import CodebaseNotFound, Codebases, InvalidInput, Sandbox
from atoll.codebases import tidying
from atoll.codebases.shelf import Shelf
from atoll.engine import launch

from .looking import check_store, current, tree_of, versions


@pytest.fixture
def home(monkeypatch):
    """Short, since Unix sockets lie in it."""
    path = tempfile.mkdtemp(prefix="cs-", dir="/tmp")
    monkeypatch.setenv("ATOLL_HOME", path)
    yield path
    launch.shut_down(path)
    shutil.rmtree(path, ignore_errors=True)  # what has ended may still be tidying up


@pytest.fixture
def sandboxes(home):
    made = []

    def make(*arguments, **keywords):
        made.append(Sandbox.create(*arguments, **keywords))
        return made[-1]

    yield make
    for each in made:
        each.destroy()


def at_once(*functions):
    outcomes = [None] * len(functions)

    def attempt(index):
        try:
            outcomes[index] = functions[index]()
        except Exception as error:  # noqa: BLE001  # compared by the test
            outcomes[index] = error

    threads = [threading.Thread(target=attempt, args=[index]) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_a_listing_can_be_of_one_codebase_however_it_was_named(codebases, sandboxes, home):
    one, other = codebases.create("one", owner="ann"), codebases.create("other")
    made = [sandboxes(codebase=name, preset="full-access").id for name in ("one", "ann/one", one.id[:8])]
    sandboxes(codebase=other, preset="full-access")
    sandboxes()
    assert {info.id for info in Sandbox.list(codebase="one")} == set(made)
    codebases.create("one", owner="bob")
    assert Sandbox.list(codebase="bob/one") == []
    assert len(Sandbox.list(codebase=one)) == 3
    with pytest.raises(CodebaseNotFound):
        Sandbox.list(codebase="none")


def test_many_sandboxes_share_one_and_see_nothing_of_each_other(codebases, source, sandboxes, shelf):
    made = codebases.create("project", source)
    before = tree_of(current(shelf, "project"))
    several = [sandboxes(codebase=name, preset="full-access") for name in ("project", made.id, f"{made.owner}/project")]
    for number, sandbox in enumerate(several):
        done = sandbox.run(f"cat readme.md && src/run.sh && readlink link && ls && echo {number} >> readme.md")
        assert done.success, done
        assert done.stdout.startswith("hello\nsrc/run.sh\n")
    assert [sandbox.files.read("readme.md") for sandbox in several] == [f"hello\n{number}\n" for number in range(3)]
    assert tree_of(current(shelf, "project")) == before, "nothing reaches a codebase by itself"


def test_what_is_applied_becomes_the_next_version_and_others_keep_theirs(codebases, source, sandboxes):
    codebases.create("project", source)
    one, other = (
        sandboxes(codebase="project", preset="full-access"),
        sandboxes(codebase="project", preset="full-access"),
    )
    assert one.run("echo more >> readme.md; chmod 700 src/run.sh; rm dangling; mkdir new; echo x > new/file").success
    applied = one.apply()
    assert set(applied.applied) >= {"readme.md", "src/run.sh", "dangling", "new/file"}
    assert codebases.get("project").version == 2
    found = {info.path: info for info in codebases.files("project")}
    assert found["src/run.sh"].mode == 0o700
    assert "dangling" not in found
    assert codebases.read("project", "readme.md") == b"hello\nmore\n"
    assert list(found) == sorted(found)
    assert other.files.read("readme.md") == "hello\n"
    assert sandboxes(codebase="project", preset="full-access").files.read("readme.md") == "hello\nmore\n"


def test_two_that_apply_at_once_lose_nothing(codebases, source, sandboxes):
    codebases.create("project", source)
    for turn in range(3):
        several = [sandboxes(codebase="project", preset="full-access") for _ in range(2)]
        for number, sandbox in enumerate(several):
            assert sandbox.run(f"echo {number} > t{turn}n{number}").success
        outcomes = at_once(*[sandbox.apply for sandbox in several])
        assert [outcome.applied for outcome in outcomes] == [(f"t{turn}n0",), (f"t{turn}n1",)], outcomes
    paths = {info.path for info in codebases.files("project")}
    assert {f"t{turn}n{number}" for turn in range(3) for number in range(2)} <= paths
    assert codebases.get("project").version == 7


def test_of_two_who_change_the_same_file_the_second_is_told(codebases, source, sandboxes):
    codebases.create("project", source)
    one, other = (
        sandboxes(codebase="project", preset="full-access"),
        sandboxes(codebase="project", preset="full-access"),
    )
    assert one.run("echo one > readme.md").success
    assert other.run("echo other > readme.md; echo y > y").success
    assert one.apply().applied == ("readme.md",)
    told = other.apply(on_conflict="keep")
    assert told.applied == ("y",)
    assert set(told.conflicts) == {"readme.md"}
    assert codebases.read("project", "readme.md") == b"one\n"


def test_a_version_is_kept_for_its_sandboxes_and_goes_after_them(codebases, source, home):
    made = codebases.create("project", source)
    with Sandbox.create(codebase="project", preset="full-access") as sandbox:
        codebases.write("project", "readme.md", "newer\n")
        tidying.collect(Shelf().home)
        assert versions(home, made.id) == [1, 2]
        sandbox.stop()
        tidying.collect(Shelf().home)
        sandbox.resume()
        assert sandbox.files.read("readme.md") == "hello\n"
    tidying.collect(Shelf().home)
    assert versions(home, made.id) == [2]
    check_store(home)


def test_a_deleted_codebase_stays_below_its_sandboxes(codebases, source, home):
    made = codebases.create("project", source)
    with Sandbox.create(codebase="project", preset="full-access") as sandbox:
        codebases.delete("project")
        tidying.collect(Shelf().home)
        assert sandbox.files.read("src/run.sh") == "#!/bin/sh\n"
        sandbox.stop()
        tidying.collect(Shelf().home)
        sandbox.resume()
        assert sandbox.files.read("src/run.sh") == "#!/bin/sh\n"
        with pytest.raises(CodebaseNotFound):
            Sandbox.create(codebase="project", preset="full-access")
    tidying.collect(Shelf().home)
    assert not os.path.exists(f"{home}/codebases/{made.id}")


@pytest.mark.parametrize("codebase", ["", "a b", "a/b/c", 1])
def test_what_can_be_no_codebase_is_refused(home, codebase):
    with pytest.raises(InvalidInput):
        Sandbox.create(codebase=codebase, preset="full-access")
    assert Codebases().list() == []
