"""The rules judge every path again, whatever the view let through. The overlay here has no view: it stands for one that
failed, so everything below is what the gate alone refuses."""

from __future__ import annotations

import os

import pytest

from atoll.review import apply, changes
from atoll.types import PathRule

from .overlays import Overlay, snapshot

RULES = [
    PathRule("**", "read"),
    PathRule("out/**", "write"),
    PathRule("shown/**", "view"),
    PathRule("secrets/**", "none"),
    PathRule("*.key", "none"),
]


@pytest.fixture
def ruled():
    with Overlay(RULES) as made:
        for name in (
            "src/a.py",
            "out/report",
            "out/my.key",
            "shown/data",
            "secrets/token",
            "out/deep/my.key",
            "top.key",
        ):
            made.in_source(name, "0\n")
        yield made.start()


def refused(done):
    return {
        path: reason.split("level ")[1].split(";")[0] for path, reason in done.rejected.items() if "level " in reason
    }


def test_only_what_may_be_written_to_is_written(ruled):
    before = snapshot(ruled.source)
    for name in ("src/a.py", "out/report", "out/my.key", "shown/data", "secrets/token", "new.py", "out/new", "src/new"):
        ruled.in_merged(name, "1\n")
    done = apply(ruled.stage)
    assert done.applied == ("out/new", "out/report")
    assert refused(done) == {
        "new.py": "'read'", "out/my.key": "'none'", "secrets/token": "'none'", "shown/data": "'view'",
        "src/a.py": "'read'", "src/new": "'read'",
    }  # fmt: skip
    after = snapshot(ruled.source)
    assert {path for path in after if after[path] != before.get(path)} == {b"out/new", b"out/report"}


def test_nothing_protected_is_deleted(ruled):
    """The sandbox removes all that it can reach: of the source goes what it may write to, and hidden files stay."""
    ruled.shell("rm -r src out shown secrets top.key")
    done = apply(ruled.stage)
    assert done.applied == ("out/report",)
    assert refused(done) == {"src": "'read'", "src/a.py": "'read'", "shown": "'view'", "shown/data": "'view'"}
    assert {b"out/my.key", b"out/deep/my.key", b"secrets/token", b"top.key"} <= snapshot(ruled.source).keys()


def test_hidden_files_are_never_told_as_deleted(ruled):
    ruled.shell("rm -r secrets top.key out/deep out/my.key")
    assert changes(ruled.stage) == []
    ruled.shell("rm out/report")
    assert [change.path for change in changes(ruled.stage)] == ["out/report"]


def test_a_directory_with_a_hidden_file_is_not_replaced_by_a_file(ruled):
    before = snapshot(ruled.source)
    ruled.shell("rm -r out/deep; echo flat > out/deep")
    done = apply(ruled.stage)
    assert (done.applied, list(done.rejected)) == ((), ["out/deep"])
    assert snapshot(ruled.source) == before


def test_the_content_of_hidden_files_is_in_no_diff(ruled):
    """Whoever reads the diff may be the model that wrote the code."""
    for name in ("secrets/token", "out/my.key", "shown/data"):
        with open(ruled.in_source(name), "w") as file:
            file.write("precious\n")
        ruled.in_merged(name, "guess\n")
    found = {change.path: change for change in changes(ruled.stage)}
    assert "precious" not in repr(found)
    assert found["out/my.key"].kind == "added"
    assert (found["shown/data"].kind, found["shown/data"].diff) == ("modified", None)


def test_a_placeholder_is_no_change(ruled):
    """As a view makes it: the size is right, there is no content, and nobody may open it."""
    for name, size in (("shown/data", 2), ("shown/other", 5000)):
        ruled.in_source(name, "x" * size)
        path = ruled.in_merged(name)
        if os.path.lexists(path):
            os.unlink(path)
        with open(path, "wb") as file:
            file.truncate(size)
        os.chmod(path, 0)
    assert changes(ruled.stage) == []
    os.chmod(ruled.in_merged("shown/data"), 0o644)
    assert [change.path for change in changes(ruled.stage)] == ["shown/data"]


def test_a_directory_that_must_be_made_needs_the_right_too():
    with Overlay([PathRule("**", "read"), PathRule("a/b/*.txt", "write")]) as overlay:
        overlay.in_source("a/b/old.txt", "0")
        overlay.start()
        overlay.in_merged("a/b/new.txt", "1")
        assert apply(overlay.stage).applied == ("a/b/new.txt",)
        overlay.shell("rm -r a")
        overlay.in_merged("a/b/new.txt", "2")
        os.unlink(overlay.in_source("a/b/new.txt"))
        os.unlink(overlay.in_source("a/b/old.txt"))
        os.rmdir(overlay.in_source("a/b"))
        done = apply(overlay.stage, ["a/b/new.txt"], on_conflict="take")
        assert done == ((), {}, {"a/b/new.txt": "The rules do not let its directory a/b be made."})


def test_a_view_that_lets_the_owner_read_and_write_is_no_change_of_bits():
    with Overlay([PathRule("**", "write")]) as overlay:
        overlay.in_source("locked", "0")
        os.chmod(overlay.in_source("locked"), 0o444)
        overlay.start()
        os.chmod(overlay.in_merged("locked"), 0o644)
        assert changes(overlay.stage) == []
        overlay.in_merged("locked", "1")
        assert apply(overlay.stage).applied == ("locked",)
        assert os.stat(overlay.in_source("locked")).st_mode & 0o777 == 0o444
        os.chmod(overlay.in_merged("locked"), 0o755)
        assert [change.kind for change in changes(overlay.stage)] == ["mode"]


def test_what_is_ignored_is_told_once_and_refused():
    with Overlay(ignore=("node_modules/", "*.log", "!keep.log")) as overlay:
        overlay.in_source("node_modules/host", "0")
        overlay.start()
        for name in ("node_modules/a/b", "node_modules/c", "x.log", "keep.log", "deep/node_modules/d"):
            overlay.in_merged(name, "1")
        found = {change.path: (change.type, change.level) for change in changes(overlay.stage)}
        assert found == {
            "deep": ("directory", "write"),
            "deep/node_modules": ("directory", "none"),
            "keep.log": ("file", "write"),
            "node_modules": ("directory", "none"),
            "x.log": ("file", "none"),
        }
        done = apply(overlay.stage)
        assert done.applied == ("deep", "keep.log")
        assert done.rejected == dict.fromkeys(["deep/node_modules", "node_modules", "x.log"], "It is ignored.")
        assert os.listdir(overlay.in_source("node_modules")) == ["host"]


def test_an_ignored_directory_that_the_sandbox_removes_stays():
    with Overlay(ignore=("build/",)) as overlay:
        overlay.in_source("build/host", "0")
        overlay.in_source("src/build/host", "0")
        overlay.start()
        overlay.shell("rm -r build src")
        assert changes(overlay.stage) == []
        assert apply(overlay.stage) == ((), {}, {})
