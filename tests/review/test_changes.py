"""What a diff tells, in a real overlay."""

from __future__ import annotations

import os
import socket
import stat
import subprocess

import pytest

from atoll import InvalidInput, InvalidPath
from atoll.review import changes

from .overlays import Overlay


def kinds(overlay, **options):
    return {change.path: change.kind for change in changes(overlay.stage, **options)}


def only(overlay):
    (change,) = changes(overlay.stage)
    return change


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
    assert (found["new.txt"].old_mode, found["new.txt"].new_mode) == (None, 0o644)
    assert (found["gone.txt"].old_mode, found["gone.txt"].new_mode) == (0o644, None)


def test_without_text_there_are_no_diffs_but_digests(overlay):
    overlay.start()
    overlay.in_merged("new.txt", "hello\n")
    (change,) = changes(overlay.stage, text=False)
    assert (change.diff, change.added_lines) == (None, 0)
    assert change.digest == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"


def test_a_file_that_was_only_touched_or_rewritten_has_not_changed(overlay):
    overlay.in_source("a", "text\n")
    overlay.in_source("b", "text\n")
    overlay.start()
    os.utime(overlay.in_merged("a"))
    overlay.in_merged("b", "text\n")
    assert changes(overlay.stage) == []
    overlay.in_merged("b", "other\n")
    assert kinds(overlay) == {"b": "modified"}


def test_permission_bits_of_a_file_are_a_change_of_their_own(overlay):
    overlay.in_source("tool.sh", "#!/bin/sh\n")
    overlay.start()
    os.chmod(overlay.in_merged("tool.sh"), 0o755)
    change = only(overlay)
    assert (change.kind, change.old_mode, change.new_mode, change.diff) == ("mode", 0o644, 0o755, None)


@pytest.mark.parametrize(("old", "new", "marks"), [("a\n", "a", 1), ("a", "a\n", 1), ("a", "b", 2), ("a\n", "b\n", 0)])
def test_a_missing_newline_at_the_end_is_told(overlay, old, new, marks):
    overlay.in_source("f", old)
    overlay.start()
    overlay.in_merged("f", new)
    change = only(overlay)
    assert change.diff.count("\\ No newline at end of file\n") == marks
    assert (change.added_lines, change.removed_lines) == (1, 1)


def test_diffs_are_patches(overlay, tmp_path):
    """Lines in the middle, at both ends, with blanks and in names with spaces: `patch` makes the one of the other."""
    lines = [f"line {number}\n" for number in range(100)]
    overlay.in_source("with space/a file", "".join(lines))
    subprocess.run(["cp", "-r", f"{overlay.source}/.", str(tmp_path)], check=True)
    overlay.start()
    changed = ["first\n", *lines[3:40], "in\n", "between\n", *lines[40:60], *lines[70:], "last"]
    overlay.in_merged("with space/a file", "".join(changed))
    change = only(overlay)
    subprocess.run(["patch", "-p1", "-s"], input=change.diff.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "with space/a file").read_text() == "".join(changed)
    assert change.diff.count("@@ ") == 4


def test_a_directory_is_removed_with_everything_in_it(overlay):
    overlay.in_source("d/e/f", "x")
    overlay.in_source("d/g", "x")
    overlay.start()
    overlay.shell("rm -r d")
    assert kinds(overlay) == dict.fromkeys(["d", "d/e", "d/e/f", "d/g"], "deleted")


def test_a_directory_that_was_removed_and_made_again_hides_what_was_in_it(overlay):
    """It is opaque in its layer, which names none of the files that are gone."""
    overlay.in_source("d/e/f", "x")
    overlay.in_source("d/g", "old")
    overlay.start()
    overlay.shell("rm -r d; mkdir d; printf old > d/g; printf new > d/h")
    assert kinds(overlay) == {"d/e": "deleted", "d/e/f": "deleted", "d/h": "added"}


@pytest.mark.root
def test_a_directory_that_was_renamed_is_at_both_places(overlay):
    """Its layer has one name and a redirect; everything below shows all the same."""
    overlay.in_source("old/deep/f", "x")
    overlay.in_source("old/g", "y")
    overlay.start()
    os.rename(overlay.in_merged("old"), overlay.in_merged("new"))
    overlay.in_merged("new/g", "z")
    gone = dict.fromkeys(["old", "old/deep", "old/deep/f", "old/g"], "deleted")
    come = dict.fromkeys(["new", "new/deep", "new/deep/f", "new/g"], "added")
    assert kinds(overlay) == gone | come


@pytest.mark.root
def test_a_directory_that_was_renamed_and_comes_back_has_not_changed(overlay):
    overlay.in_source("d/f", "x")
    overlay.start()
    overlay.shell("mv d e; mv e d")
    assert changes(overlay.stage) == []


def test_types_change(overlay):
    overlay.in_source("file", "x\n")
    overlay.in_source("dir/inside", "y\n")
    os.symlink("file", overlay.in_source("link"))
    overlay.start()
    overlay.shell("rm file; mkdir file; echo new > file/new; rm -r dir; echo flat > dir; rm link; echo real > link")
    found = {change.path: change for change in changes(overlay.stage)}
    assert {path: (change.kind, change.type) for path, change in found.items()} == {
        "dir": ("modified", "file"),
        "dir/inside": ("deleted", "file"),
        "file": ("modified", "directory"),
        "file/new": ("added", "file"),
        "link": ("modified", "file"),
    }
    assert found["link"].diff.splitlines()[2:] == ["@@ -1 +1 @@", "-file", "\\ No newline at end of file", "+real"]


def test_links_are_compared_by_their_targets(overlay):
    os.symlink("a", overlay.in_source("same"))
    os.symlink("a", overlay.in_source("other"))
    overlay.start()
    overlay.shell("ln -sfn a same; ln -sfn b other; ln -s /etc/passwd new")
    found = {change.path: (change.kind, change.type) for change in changes(overlay.stage)}
    assert found == {"other": ("modified", "symlink"), "new": ("added", "symlink")}


def test_changes_of_several_layers_are_one_diff(overlay):
    """As after two snapshots: a later layer hides or renames what an earlier one changed."""
    for name in ("a", "b", "c/d"):
        overlay.in_source(name, "0")
    overlay.start()
    overlay.in_merged("a", "1")
    overlay.in_merged("b", "1")
    overlay.in_merged("x", "1")
    overlay.restack()
    overlay.in_merged("b", "0")
    overlay.in_merged("y", "2")
    os.unlink(overlay.in_merged("x"))
    overlay.restack()
    overlay.shell("rm -r c; printf 3 > y")
    found = {change.path: (change.kind, change.diff and change.diff[-33:-29]) for change in changes(overlay.stage)}
    assert {path: kind for path, (kind, _) in found.items()} == {
        "a": "modified", "c": "deleted", "c/d": "deleted", "y": "added",
    }  # fmt: skip


def test_only_the_selected_paths_are_looked_at(overlay):
    overlay.start()
    for name in ("a/b/c", "a/bb", "d", "a b"):
        overlay.in_merged(name, "x")
    assert kinds(overlay, paths=["a/b", "./d"]) == {"a/b": "added", "a/b/c": "added", "d": "added"}
    assert kinds(overlay, paths=["a/"]).keys() == {"a", "a/b", "a/b/c", "a/bb"}
    assert kinds(overlay, paths=["nothing"]) == {}
    assert kinds(overlay, paths=["."]) == kinds(overlay)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\0b"])
def test_a_path_outside_the_workspace_is_refused(overlay, path):
    overlay.start()
    with pytest.raises(InvalidPath):
        changes(overlay.stage, paths=[path])


def test_paths_are_a_list(overlay):
    overlay.start()
    with pytest.raises(InvalidInput, match="give a list"):
        changes(overlay.stage, paths="src")


def test_special_files_are_told_and_never_opened(overlay):
    overlay.start()
    os.mkfifo(overlay.in_merged("pipe"))
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(overlay.merged, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    found = {change.path: (change.kind, change.type, change.digest) for change in changes(overlay.stage)}
    assert found == {"pipe": ("added", "other", None), "socket": ("added", "other", None)}


@pytest.mark.root
def test_a_device_is_told_and_never_opened(overlay):
    """/dev/watchdog would start to count down when it is opened; a terminal would hang."""
    overlay.in_source("was-a-file", "x")
    overlay.start()
    os.mknod(overlay.in_merged("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.unlink(overlay.in_merged("was-a-file"))
    os.mknod(overlay.in_merged("was-a-file"), stat.S_IFCHR | 0o666, os.makedev(5, 0))
    found = {change.path: (change.kind, change.type) for change in changes(overlay.stage)}
    assert found == {"null": ("added", "other"), "was-a-file": ("modified", "other")}


def test_binary_and_strange_text(overlay):
    overlay.start()
    overlay.in_merged("binary", b"a\0b\n")
    overlay.in_merged("latin", "caf\xe9\n".encode("latin-1"))
    overlay.in_merged("separators", "one\u2028still one\x0cstill one\r\n")
    found = {change.path: change for change in changes(overlay.stage)}
    assert found["binary"].diff is None
    assert found["latin"].diff.endswith("+caf\\xe9\n")
    assert found["separators"].added_lines == 1


def test_names_with_strange_signs(overlay):
    overlay.start()
    names = [b"new\nline", b"esc\x1b[31m", b"no-utf-\xff\xfe", b'quote"back\\slash', b" ", b"\xe2\x80\xaertl", b".wh.x"]
    for name in names:
        with open(os.fsencode(overlay.merged) + b"/" + name, "w") as file:
            file.write("x\n")
    found = changes(overlay.stage)
    assert {os.fsencode(change.path) for change in found} == set(names)
    for change in found:
        head = change.diff.split("\n")[1].removeprefix("+++ ").rstrip("\t")
        assert head.isprintable()


def test_files_named_like_whiteouts_hide_nothing(overlay):
    """Other tools mark a removed file so; here a name is a name."""
    overlay.in_source("secret", "x")
    overlay.in_source("dir/inside", "x")
    overlay.start()
    overlay.in_merged(".wh.secret", "")
    overlay.in_merged("dir/.wh..wh..opq", "")
    overlay.in_merged("dir/.wh...", "")
    assert kinds(overlay) == dict.fromkeys([".wh.secret", "dir/.wh..wh..opq", "dir/.wh..."], "added")


def test_a_forged_opaque_mark_hides_nothing():
    """The attribute is set where only the sandbox's own layer has it: the kernel says what is there, not the mark."""
    with Overlay() as overlay:
        overlay.in_source("dir/kept", "x")
        overlay.start()
        overlay.in_merged("dir/new", "y")
        with open(overlay.in_merged("dir/new"), "rb") as file:
            os.setxattr(file.fileno(), "user.overlay.opaque", b"y")
        assert kinds(overlay) == {"dir/new": "added"}
