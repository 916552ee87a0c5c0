"""Random trees, random edits in a real overlay, random rules: what an apply leaves is what the sandbox sees, where it
may write, and what was there, everywhere else."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

from hypothesis import given, strategies as st
from tests import thorough

from atoll.policy.rules import Matcher
from atoll.review import apply, changes
from atoll.types import PathRule

from .overlays import IN_MEMORY, Overlay, snapshot
from .test_apply import assert_clean

NAMES = ["a", "b", "c", "sp ace", ".wh.a", "nl\nx", "\udcff"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
CONTENTS = st.sampled_from([b"", b"0", b"one\ntwo\n", b"\0bin", b"x" * 5000])
MODES = st.sampled_from([0o644, 0o755, 0o600])
TARGETS = st.sampled_from(["a", "./b", "../a", "c/../b", "/etc/passwd", "..", "../..", "a/b"])
EDITS = st.one_of(
    st.tuples(st.just("write"), PATHS, CONTENTS, MODES),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("mkdir"), PATHS),
    st.tuples(st.just("link"), PATHS, TARGETS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("chmod"), PATHS, MODES),
    st.tuples(st.just("touch"), PATHS),
    st.tuples(st.just("remake"), PATHS),
    st.tuples(st.just("layer")),
)
TREES = st.lists(EDITS, max_size=12)
PATTERNS = st.sampled_from(["**", "a/**", "b", "*/c", "a/b/**", "/c", ".wh.*", "a/*", "sp ace/**"])
LEVELS = st.sampled_from(["none", "view", "read", "write"])
RULES = st.lists(st.tuples(PATTERNS, LEVELS).map(lambda pair: PathRule(*pair)), min_size=1, max_size=5)


def write(path, content, mode):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def remake(path):
    shutil.rmtree(path)
    os.mkdir(path)


def link(path, target):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


def chmod(path, mode):
    if stat.S_ISREG(os.lstat(path).st_mode):
        os.chmod(path, mode)


def edit(overlay, root, edits):
    """Do what can be done; an edit that makes no sense there is left out."""
    acts = {
        "write": write, "remove": remove, "mkdir": os.makedirs, "link": link, "chmod": chmod, "remake": remake,
        "touch": lambda path: os.utime(path, follow_symlinks=False),
    }  # fmt: skip
    for name, *values in edits:
        if name == "layer":
            if root is None:
                overlay.restack()
            continue
        base = os.path.realpath(root) if root else overlay.merged
        path = os.path.join(base, values[0])
        # A link on the way would lead an edit out of the tree.
        if not beneath(base, values[0]) or (name == "rename" and not beneath(base, values[1])):
            continue
        with contextlib.suppress(OSError):
            if name == "rename":
                os.rename(path, os.path.join(base, values[1]))
            else:
                acts[name](path, *values[1:])


def beneath(base, path):
    above = base
    for name in path.split("/")[:-1]:
        above = os.path.join(above, name)
        if os.path.islink(above):
            return False
    return not (os.path.islink(os.path.join(base, path)))


def without_directory_modes(found):
    """The bits of directories are not taken over."""
    return {path: entry[:1] if entry[0] == stat.S_IFDIR else entry for path, entry in found.items()}


@thorough.examples(120, 40)
@given(TREES, TREES)
def test_without_rules_the_source_becomes_what_the_sandbox_sees(tree, edits):
    with Overlay(where=IN_MEMORY) as overlay:
        edit(overlay, overlay.source, tree)
        overlay.start()
        before = snapshot(overlay.outside)
        edit(overlay, None, edits)
        reviewed = changes(overlay.stage)
        done = apply(overlay.stage, reviewed=reviewed, new_hidden=True)
        assert done.conflicts == {}
        assert set(done.rejected) | set(done.applied) == {change.path for change in reviewed}
        overlay.remount()
        there, seen = (
            without_directory_modes(snapshot(overlay.source)),
            without_directory_modes(snapshot(overlay.merged)),
        )
        refused = {os.fsencode(path) for path in done.rejected}
        assert {path for path in there.keys() | seen.keys() if there.get(path) != seen.get(path)} <= refused
        links = {change.path for change in reviewed if change.type == "symlink"}
        beside = {path for path in done.rejected if path not in links}
        assert not beside or links & set(done.rejected), "only links are refused, and what they stand in the way of"
        assert {change.path for change in changes(overlay.stage)} == set(done.rejected)
        assert snapshot(overlay.outside) == before
        assert_clean(overlay)


@thorough.examples(120, 40)
@given(TREES, TREES, RULES)
def test_with_rules_only_what_may_be_written_to_changes(tree, edits, rules):
    level = Matcher(rules).level
    with Overlay(rules, where=IN_MEMORY) as overlay:
        edit(overlay, overlay.source, tree)
        overlay.start()
        before = without_directory_modes(snapshot(overlay.source))
        edit(overlay, None, edits)
        found = changes(overlay.stage)
        done = apply(overlay.stage, new_hidden=True)
        overlay.remount()
        after = without_directory_modes(snapshot(overlay.source))
        seen = without_directory_modes(snapshot(overlay.merged))
        changed = {os.fsdecode(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert all(level(path) == "write" for path in changed)
        assert changed <= set(done.applied)
        for path in done.applied:
            assert after.get(os.fsencode(path)) == seen.get(os.fsencode(path))
        files = {path for path in before if before[path][0] != stat.S_IFDIR}
        hidden = {path for path in files if level(os.fsdecode(path)) == "none"}
        assert not {change.path for change in found if change.kind == "deleted"} & {
            os.fsdecode(path) for path in hidden
        }
        assert {change.path for change in changes(overlay.stage)} <= set(done.rejected)
        assert_clean(overlay)


@thorough.examples(60, 30)
@given(TREES, TREES, st.lists(PATHS, min_size=1, max_size=3))
def test_a_selection_changes_nothing_else(tree, edits, selection):
    with Overlay(where=IN_MEMORY) as overlay:
        edit(overlay, overlay.source, tree)
        overlay.start()
        before = snapshot(overlay.source)
        edit(overlay, None, edits)
        done = apply(overlay.stage, selection, new_hidden=True)
        after = snapshot(overlay.source)
        changed = {os.fsdecode(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert changed <= set(done.applied)
        above = {os.path.dirname(path) for path in selection} | {os.path.dirname(os.path.dirname(p)) for p in selection}
        for path in changed:
            inside = any(path == chosen or path.startswith(chosen + "/") for chosen in selection)
            assert inside or path in above or any(chosen.startswith(path + "/") for chosen in selection)
