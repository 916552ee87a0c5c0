"""A source that has moved on is never overwritten unasked, and the record that tells."""

from __future__ import annotations

import os
import time

import pytest

from atoll.review import apply, changes, load_base, record_base

from .overlays import Overlay, place, read, snapshot

CHANGED = "It has changed in the source since the sandbox started."
APPEARED = "It has appeared in the source since the sandbox started."
REMOVED = "It has been removed from the source since the sandbox started."
UNKNOWN = "Nothing is known of what the source had there when the sandbox started."


@pytest.fixture
def moved(overlay):
    """Both sides have changed the same paths, each in its way, and the sandbox one more."""
    for name in ("both", "gone-here", "gone-there", "mode"):
        overlay.in_source(name, "0")
    os.symlink("0", overlay.in_source("link"))
    overlay.start()
    overlay.in_source("both", "source")
    overlay.in_source("new", "source")
    overlay.in_source("gone-here", "source")
    os.unlink(overlay.in_source("gone-there"))
    os.chmod(overlay.in_source("mode"), 0o600)
    os.unlink(overlay.in_source("link"))
    os.symlink("source", overlay.in_source("link"))
    for name in ("both", "new", "gone-there", "mine"):
        overlay.in_merged(name, "sandbox")
    os.unlink(overlay.in_merged("gone-here"))
    os.chmod(overlay.in_merged("mode"), 0o700)
    os.unlink(overlay.in_merged("link"))
    os.symlink("sandbox", overlay.in_merged("link"))
    return overlay


CONFLICTS = {
    "both": CHANGED, "gone-here": CHANGED, "gone-there": REMOVED, "link": CHANGED, "mode": CHANGED, "new": APPEARED,
}  # fmt: skip


def test_asked_an_apply_does_nothing_at_all(moved):
    before = snapshot(moved.source)
    assert apply(moved.stage) == ((), CONFLICTS, {})
    assert snapshot(moved.source) == before


def test_keeping_leaves_the_sources_version(moved):
    before = snapshot(moved.source)
    assert apply(moved.stage, on_conflict="keep") == (("mine",), CONFLICTS, {})
    after = snapshot(moved.source)
    assert after.pop(b"mine")[0] == "file"
    assert after == before


def test_taking_takes_the_sandboxs_version(moved):
    done = apply(moved.stage, on_conflict="take")
    assert (set(done.applied), done.conflicts, done.rejected) == ({*CONFLICTS, "mine"}, {}, {})
    assert snapshot(moved.source) == snapshot(moved.merged)


def test_a_selection_without_the_conflicts_comes_over(moved):
    assert apply(moved.stage, ["mine"]) == (("mine",), {}, {})


def test_the_same_change_on_both_sides_is_none(overlay):
    overlay.in_source("a", "0")
    overlay.start()
    for put in (overlay.in_source, overlay.in_merged):
        put("a", "1")
        put("b", "new")
    assert changes(overlay.stage) == []
    assert apply(overlay.stage) == ((), {}, {})


def test_a_source_that_was_rewritten_with_the_same_content_is_no_conflict(overlay):
    """As `git checkout` to and fro does it: the time stamps and numbers differ, the digest does not."""
    overlay.in_source("a", "0")
    overlay.start()
    os.unlink(overlay.in_source("a"))
    overlay.in_source("a", "0")
    overlay.in_merged("a", "1")
    assert apply(overlay.stage).applied == ("a",)


def test_what_the_sandbox_only_touched_does_not_revert_the_source(overlay):
    """It has its old copy of the file; the source has a newer one, which stays."""
    overlay.in_source("a", "0")
    overlay.in_source("b", "0")
    overlay.start()
    os.utime(overlay.in_merged("a"))
    os.utime(overlay.in_merged("b"))
    overlay.in_source("a", "newer")
    os.unlink(overlay.in_source("b"))
    assert changes(overlay.stage) == []
    assert apply(overlay.stage, on_conflict="take") == ((), {}, {})
    overlay.in_merged("a", "1")
    assert apply(overlay.stage).conflicts == {"a": CHANGED}


def test_a_change_within_one_tick_of_the_clock_is_found_by_its_digest(overlay):
    """Same size, same times, same number: only the content differs."""
    path = overlay.in_source("a", "0")
    overlay.start()
    found = os.stat(path)
    with open(path, "r+") as file:
        file.write("1")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    overlay.in_merged("a", "2")
    assert apply(overlay.stage).conflicts == {"a": CHANGED}


def test_a_file_that_came_into_a_removed_directory_keeps_it(overlay):
    overlay.in_source("d/old", "x")
    overlay.start()
    overlay.shell("rm -r d")
    overlay.in_source("d/new", "from the host")
    assert [change.path for change in changes(overlay.stage)] == ["d/old"]
    assert apply(overlay.stage).applied == ("d/old",)
    assert os.listdir(overlay.in_source("d")) == ["new"]


def test_a_new_file_in_a_directory_that_the_source_has_removed_is_a_conflict(overlay):
    overlay.in_source("d/old", "x")
    overlay.start()
    overlay.in_merged("d/new", "x")
    os.unlink(overlay.in_source("d/old"))
    os.rmdir(overlay.in_source("d"))
    reason = "Its directory has been removed from the source since the sandbox started."
    assert apply(overlay.stage, ["d/new"]).conflicts == {"d/new": reason}


def test_without_a_record_only_new_files_are_certain(overlay):
    overlay.in_source("a", "0")
    overlay.in_source("b", "0")
    overlay.start(record=False)
    overlay.in_merged("a", "1")
    overlay.in_merged("new", "1")
    os.unlink(overlay.in_merged("b"))
    assert apply(overlay.stage) == ((), {"a": UNKNOWN, "b": UNKNOWN}, {})
    assert apply(overlay.stage._replace(base=None)).conflicts == {"a": UNKNOWN, "b": UNKNOWN}
    assert apply(overlay.stage, ["new"]).applied == ("new",)


def test_without_a_record_the_clock_tells_what_is_older_than_the_sandbox(overlay):
    overlay.in_source("old/a", "0")
    overlay.in_source("renamed/a", "0")
    overlay.in_source("changed", "0")
    deadline = time.time_ns() + 50_000_000
    while time.time_ns() < deadline:
        pass
    overlay.started = time.time_ns()
    overlay.start(record=False)
    for name in ("old/a", "renamed/a", "changed"):
        overlay.in_merged(name, "1")
    assert apply(overlay.stage, ["old/a"]).applied == ("old/a",)
    os.rename(overlay.in_source("renamed"), overlay.in_source("away"))
    os.rename(overlay.in_source("away"), overlay.in_source("renamed"))
    overlay.in_source("changed", "2")
    assert apply(overlay.stage, ["renamed", "changed"]).conflicts == {"changed": UNKNOWN, "renamed/a": UNKNOWN}


def test_a_snapshot_saw_the_source_before_its_sandbox_did(overlay):
    overlay.in_source("a", "0")
    overlay.started = time.time_ns() + 10**9
    overlay.start(record=False)
    overlay.in_merged("a", "1")
    overlay.restack()
    assert apply(overlay.stage).conflicts == {"a": UNKNOWN}


def test_a_record_holds_for_a_copy_of_the_source(overlay):
    """As a codebase: its next version begins as a copy of the one that the sandbox saw."""
    overlay.in_source("a", "0")
    overlay.in_source("b", "0")
    overlay.start()
    overlay.in_merged("a", "1")
    overlay.in_merged("b", "1")
    copy = os.path.join(overlay.home, "copy")
    os.mkdir(copy)
    place(copy, "a", "0")
    place(copy, "b", "other")
    stage = overlay.stage._replace(source=copy)
    assert apply(stage).conflicts == {"b": CHANGED}
    assert apply(stage, on_conflict="keep").applied == ("a",)


def test_two_sandboxes_of_one_source_do_not_overwrite_each_other():
    with Overlay() as one, Overlay() as two:
        two.source, two.state = one.source, one.state
        one.in_source("shared", "0")
        one.start()
        two.start()
        one.in_merged("shared", "one")
        one.in_merged("mine", "one")
        two.in_merged("shared", "two")
        assert apply(one.stage).applied == ("mine", "shared")
        assert apply(two.stage).conflicts == {"shared": CHANGED}
        assert apply(two.stage, on_conflict="take").applied == ("shared",)
        assert read(one.in_source("shared")) == b"two"


def test_a_record_can_be_read_at_every_stage_of_its_writing(overlay):
    """Whoever reads it early knows less, and nothing wrong."""
    for number in range(20):
        overlay.in_source(f"d{number % 3}/{number}", str(number))
    record_base(overlay.source, overlay.base, None, None)
    with open(overlay.base, "rb") as file:
        whole = file.read()
    full = load_base(overlay.base)
    paths = [f"d{number % 3}/{number}" for number in range(20)]
    assert full.complete
    assert all(full.record(path).digest for path in paths)
    partial = os.path.join(overlay.home, "partial")
    for size in range(0, len(whole), 7):
        with open(partial, "wb") as file:
            file.write(whole[:size])
        read = load_base(partial)
        for path in paths:
            record = read.record(path)
            assert record is None or record._replace(digest=None) == full.record(path)._replace(digest=None)
            assert record is None or record.digest in (None, full.record(path).digest)
            assert record is not None or not read.complete
    assert not load_base(partial + "-missing").complete


def test_a_line_that_was_cut_spoils_no_other(overlay):
    """Whoever wrote what an apply did was killed within a line, and the next one wrote on."""
    overlay.in_source("a", "0")
    overlay.start()
    for number in range(3):
        overlay.in_merged("a", str(number + 1))
        assert apply(overlay.stage).applied == ("a",)
        with open(f"{overlay.base}.applied", "a") as file:
            file.write('["s","a","fi')


def test_a_record_has_what_the_sandbox_sees_and_nothing_else(overlay):
    from atoll.policy.ignores import Ignores
    from atoll.policy.rules import Matcher

    for name in ("src/a.py", "src/.env", "secrets/key", "big/file", "out/x", "link-target"):
        overlay.in_source(name, "x")
    os.symlink("link-target", overlay.in_source("link"))
    matcher = Matcher([("**", "read"), ("out/**", "write"), (".env", "none"), ("secrets/**", "none")])
    record_base(overlay.source, overlay.base, matcher, Ignores(["big/"]))
    base = load_base(overlay.base)
    names = {name: base.record(name) for name in ("src/a.py", "src/.env", "secrets/key", "big/file", "out/x", "link")}
    assert {name for name, record in names.items() if record} == {"src/a.py", "out/x", "link"}
    assert names["out/x"].digest is not None
    assert names["src/a.py"].digest is None
    assert names["link"].digest is not None


def test_strange_names_are_recorded(overlay):
    names = [b"new\nline", b"no-utf-\xff", b'quote"', b"\xe2\x80\xae"]
    for name in names:
        with open(os.fsencode(overlay.source) + b"/" + name, "w") as file:
            file.write("x")
    record_base(overlay.source, overlay.base, None, None)
    base = load_base(overlay.base)
    assert all(base.record(os.fsdecode(name)).digest for name in names)
