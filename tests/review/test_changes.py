"""What a diff tells of plain changes, in a real overlay."""

from __future__ import annotations

import os

import pytest

from atoll import InvalidInput, InvalidPath
from atoll.review import apply, changes

from .overlays import Overlay, snapshot


def kinds(overlay, **options):
    return {change.path: change.kind for change in changes(overlay.stage, **options)}


def test_nothing_has_changed_at_first(overlay):
    overlay.in_source("a/b.txt", "text\n")
    overlay.start()
    assert changes(overlay.stage) == []


def test_a_file_is_added_modified_and_deleted(overlay):
    overlay.in_source("old.txt", "one\ntwo\n")
    overlay.in_source("gone.txt", "bye\n")
    overlay.in_source("same.txt", "same\n")
    overlay.start()
    overlay.in_merged("old.txt", "one\n2\n")
    overlay.in_merged("new.txt", "hello\n")
    os.unlink(overlay.in_merged("gone.txt"))
    found = {change.path: change for change in changes(overlay.stage)}
    assert {path: change.kind for path, change in found.items()} == {
        "gone.txt": "deleted", "new.txt": "added", "old.txt": "modified",
    }  # fmt: skip
    assert found["old.txt"].diff == "--- a/old.txt\n+++ b/old.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert found["new.txt"].diff == "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hello\n"
    assert found["gone.txt"].diff == "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
    assert (found["old.txt"].added_lines, found["old.txt"].removed_lines) == (1, 1)


def test_apply_brings_them_over(overlay):
    overlay.in_source("dir/old.txt", "one\ntwo\n")
    overlay.in_source("gone/gone.txt", "bye\n")
    overlay.start()
    overlay.in_merged("dir/old.txt", "one\n2\n")
    overlay.in_merged("new/deep/new.txt", "hello\n")
    overlay.shell("rm -r gone; ln -s deep/new.txt new/link; mkdir empty")
    done = apply(overlay.stage)
    assert done.applied == (
        "dir/old.txt", "empty", "gone", "gone/gone.txt", "new", "new/deep", "new/deep/new.txt", "new/link",
    )  # fmt: skip
    assert (done.conflicts, done.rejected) == ({}, {})
    assert snapshot(overlay.source) == snapshot(overlay.merged)
    assert changes(overlay.stage) == []
    assert os.listdir(overlay.state) != [] and not any(name.endswith("journal") for name in os.listdir(overlay.state))
