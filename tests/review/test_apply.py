"""What an apply brings into the source and what it refuses, in a real overlay. Each refusal has a control."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys

import pytest

from atoll import InvalidInput
from atoll.review import apply, changes

from .overlays import Overlay, snapshot


def journals(overlay):
    return [name for name in os.listdir(overlay.state) if not name.endswith(".lock")]


def assert_clean(overlay):
    """Nothing of an apply is left."""
    assert journals(overlay) == []
    assert [name for name in os.listdir(overlay.source) if name.startswith(".atoll")] == []


def test_everything_comes_over(overlay):
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
    assert_clean(overlay)


def test_nothing_to_apply_is_nothing_done(overlay):
    overlay.in_source("a", "x")
    overlay.start()
    assert apply(overlay.stage) == ((), {}, {})
    assert_clean(overlay)


def test_what_was_applied_can_be_changed_and_applied_again(overlay):
    """After an apply the sandbox is compared with what it put there, not with what it began with."""
    overlay.in_source("a", "0")
    overlay.in_source("gone", "x")
    overlay.start()
    for number in range(1, 4):
        overlay.in_merged("a", str(number))
        overlay.in_merged("new", str(number))
        assert apply(overlay.stage).applied == ("a", "new")
        assert snapshot(overlay.source) == snapshot(overlay.merged)
    os.unlink(overlay.in_merged("new"))
    os.chmod(overlay.in_merged("a"), 0o700)
    assert apply(overlay.stage) == (("a", "new"), {}, {})
    overlay.in_merged("new", "again")
    overlay.in_merged("a", "4")
    assert apply(overlay.stage) == (("a", "new"), {}, {})
    assert snapshot(overlay.source) == snapshot(overlay.merged)


def test_only_the_selected_paths_come_over(overlay):
    overlay.in_source("same", "x")
    overlay.start()
    for name in ("a/b", "a/c", "d", "e/f/g"):
        overlay.in_merged(name, "x")
    done = apply(overlay.stage, ["a", "e/f/g", "same", "nothing"])
    assert done.applied == ("a", "a/b", "a/c", "e", "e/f", "e/f/g")
    assert done.rejected == {"same": "It has not changed.", "nothing": "It has not changed."}
    assert not os.path.exists(overlay.in_source("d"))


def test_types_change_both_ways(overlay):
    overlay.in_source("file", "x\n")
    overlay.in_source("dir/inside/deep", "y\n")
    os.symlink("file", overlay.in_source("link"))
    overlay.start()
    overlay.shell("rm file; mkdir file; echo new > file/new; rm -r dir; echo flat > dir; rm link; mkdir link")
    done = apply(overlay.stage)
    assert (done.conflicts, done.rejected) == ({}, {})
    assert snapshot(overlay.source) == snapshot(overlay.merged)
    overlay.shell("rm -r file link dir; ln -s x file; echo y > link; mkdir dir; ln -s ../link dir/inside")
    done = apply(overlay.stage)
    assert (done.conflicts, done.rejected) == ({}, {})
    assert snapshot(overlay.source) == snapshot(overlay.merged)


def test_a_file_below_one_that_becomes_a_directory_needs_it(overlay):
    overlay.in_source("a", "x")
    overlay.start()
    overlay.shell("rm a; mkdir a; echo new > a/new")
    done = apply(overlay.stage, ["a/new"])
    assert (done.applied, list(done.rejected)) == ((), ["a/new"])
    assert apply(overlay.stage, ["a"]).applied == ("a", "a/new")


def test_permission_bits_come_over_but_not_those_that_give_power(overlay):
    for name in ("run", "power", "both"):
        overlay.in_source(name, "x")
    overlay.start()
    os.chmod(overlay.in_merged("run"), 0o750)
    os.chmod(overlay.in_merged("power"), 0o4644)
    os.chmod(overlay.in_merged("both"), 0o2755)
    overlay.in_merged("new", "x")
    os.chmod(overlay.in_merged("new"), 0o6711)
    os.mkdir(overlay.in_merged("shared"))
    os.chmod(overlay.in_merged("shared"), 0o3755)
    done = apply(overlay.stage)
    assert done.applied == ("both", "new", "run", "shared")
    assert done.rejected == {"power": "Set-user-id, set-group-id and sticky bits are never applied."}
    modes = {name: stat.S_IMODE(os.stat(overlay.in_source(name)).st_mode) for name in os.listdir(overlay.source)}
    assert modes == {"run": 0o750, "power": 0o644, "both": 0o755, "new": 0o711, "shared": 0o755}


@pytest.mark.root
def test_the_owner_is_that_of_the_source(overlay):
    overlay.in_source("theirs", "x")
    overlay.in_source("home/file", "x")
    os.chown(overlay.in_source("theirs"), 1001, 1002)
    os.chown(overlay.in_source("home"), 2001, 2002)
    overlay.start()
    overlay.shell(
        "echo y > theirs; chown 0:0 theirs; mkdir -p home/new/deep; echo y > home/new/deep/file; echo y > top"
    )
    overlay.shell("ln -s file home/link; chown -R 4242 home")
    apply(overlay.stage)
    owners = {}
    for name in ("theirs", "home/new", "home/new/deep/file", "home/link", "top"):
        found = os.lstat(overlay.in_source(name))
        owners[name] = (found.st_uid, found.st_gid)
    mine = (os.geteuid(), os.getegid())
    assert owners == {
        "theirs": (1001, 1002), "home/new": (2001, 2002), "home/new/deep/file": (2001, 2002),
        "home/link": (2001, 2002), "top": mine,
    }  # fmt: skip


def test_another_name_of_a_file_outside_stays_as_it_is(overlay):
    """A package manager links files of its store into a tree: neither content nor bits may change in the store."""
    for name in ("content", "bits", "gone"):
        store = os.path.join(overlay.outside, name)
        with open(store, "w") as file:
            file.write("stored")
        os.link(store, overlay.in_source(name))
    before = snapshot(overlay.outside)
    overlay.start()
    overlay.in_merged("content", "changed")
    os.chmod(overlay.in_merged("bits"), 0o777)
    os.unlink(overlay.in_merged("gone"))
    assert apply(overlay.stage).applied == ("bits", "content", "gone")
    assert snapshot(overlay.source) == snapshot(overlay.merged)
    assert snapshot(overlay.outside) == before


def test_attributes_of_a_file_survive_its_new_content(overlay):
    overlay.in_source("a", "x")
    os.setxattr(overlay.in_source("a"), "user.note", b"mine")
    overlay.start()
    overlay.in_merged("a", "y")
    os.setxattr(overlay.in_merged("a"), "user.note", b"theirs")
    apply(overlay.stage)
    assert os.getxattr(overlay.in_source("a"), "user.note") == b"mine"


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "..", "../x", "../../x", "sub/../../x", "sub/../ok", "a/b/up/../x", "out/secret", "../source/ok"],
)
def test_a_link_that_leads_out_is_refused(overlay, target):
    overlay.in_source("ok", "x")
    overlay.in_source("sub/inside", "x")
    os.symlink("../outside", overlay.in_source("out"))
    overlay.start()
    os.symlink(target, overlay.in_merged("link"))
    os.symlink("sub/inside", overlay.in_merged("good"))
    done = apply(overlay.stage)
    assert done.applied == ("good",)
    assert list(done.rejected) == ["link"]
    assert not os.path.lexists(overlay.in_source("link"))


@pytest.mark.parametrize("target", ["ok", "./ok", "../ok", "inside", "nowhere/yet", "..", ".", "../sub//inside", "new"])
def test_a_link_that_stays_inside_comes_over(overlay, target):
    overlay.in_source("ok", "x")
    overlay.in_source("sub/inside", "x")
    overlay.start()
    os.symlink(target, overlay.in_merged("sub/link"))
    overlay.in_merged("sub/new", "x")
    done = apply(overlay.stage)
    assert (done.applied, done.rejected) == (("sub/link", "sub/new"), {})
    assert os.readlink(overlay.in_source("sub/link")) == target


def test_two_links_cannot_lead_out_together(overlay):
    """The first leads to the top, which is inside; the second would climb from there."""
    overlay.in_source("a/b/c/file", "x")
    overlay.start()
    os.symlink("../../..", overlay.in_merged("a/b/c/top"))
    os.symlink("a/b/c/top/../outside", overlay.in_merged("evil"))
    done = apply(overlay.stage)
    assert (done.applied, list(done.rejected)) == (("a/b/c/top",), ["evil"])


@pytest.mark.parametrize(
    ("links", "good"),
    [
        ({"near": "sub", "evil": "near/out/secret"}, "near"),
        ({"near": "far", "far": "sub", "evil": "near/out"}, "far near"),
        ({"far": "sub", "evil": "dangling/out"}, "far"),
        ({"sub/back": "..", "evil": "sub/back/sub/out"}, "sub/back"),
    ],
)
def test_links_that_come_together_cannot_lead_over_one_of_the_sources_that_leads_out(overlay, links, good):
    overlay.in_source("sub/inside", "x")
    os.symlink("../../outside", overlay.in_source("sub/out"))
    os.symlink("far", overlay.in_source("dangling"))
    overlay.start()
    for path, target in {**links, "fine": next(iter(links)) + "/inside"}.items():
        os.symlink(target, overlay.in_merged(path))
    done = apply(overlay.stage)
    assert done.applied == tuple(sorted(["fine", *good.split()]))
    assert done.rejected == {"evil": "It is a link that leads out of the workspace, over another link."}
    assert not os.path.lexists(overlay.in_source("evil"))


def test_links_that_lead_in_circles_have_an_end(overlay):
    overlay.start()
    for path, target in {"one": "two/x", "two": "one/x", "fine": "file"}.items():
        os.symlink(target, overlay.in_merged(path))
    overlay.in_merged("file", "x")
    done = apply(overlay.stage)
    assert (done.applied, sorted(done.rejected)) == (("file", "fine"), ["one", "two"])


def test_a_directory_that_becomes_a_link_takes_no_other_link_out(overlay):
    overlay.in_source("sub/inside", "x")
    overlay.in_source("was/file", "x")
    os.symlink("../../outside", overlay.in_source("sub/out"))
    overlay.start()
    shutil.rmtree(overlay.in_merged("was"))
    os.symlink("sub", overlay.in_merged("was"))
    os.symlink("was/out", overlay.in_merged("evil"))
    os.symlink("was/inside", overlay.in_merged("fine"))
    done = apply(overlay.stage)
    assert list(done.rejected) == ["evil"]
    assert {"fine", "was"} <= set(done.applied)


def test_special_files_are_refused_on_both_sides(overlay):
    os.mkfifo(overlay.in_source("pipe"))
    os.mkfifo(overlay.in_source("gone"))
    overlay.start()
    os.mkfifo(overlay.in_merged("new"))
    os.unlink(overlay.in_merged("gone"))
    os.unlink(overlay.in_merged("pipe"))
    overlay.in_merged("pipe", "a file now")
    overlay.in_merged("fine", "x")
    done = apply(overlay.stage)
    assert done.applied == ("fine",)
    assert done.rejected == {
        "gone": "The source has a pipe, a socket or a device there, which is never touched.",
        "new": "It is a pipe, a socket or a device, which is never applied.",
        "pipe": "The source has a pipe, a socket or a device there, which is never touched.",
    }
    assert stat.S_ISFIFO(os.stat(overlay.in_source("pipe")).st_mode)


def test_the_place_of_an_apply_is_taken_by_nobody(overlay):
    overlay.start()
    overlay.in_merged(".atoll-apply-0123/x", "x")
    overlay.in_merged("deep/.atoll-apply-0123/x", "x")
    done = apply(overlay.stage, new_hidden=True)
    reason = "Its name is one that atoll keeps for itself."
    assert done.rejected == dict.fromkeys([".atoll-apply-0123", ".atoll-apply-0123/x"], reason)
    assert done.applied == ("deep", "deep/.atoll-apply-0123", "deep/.atoll-apply-0123/x")


def test_what_was_not_reviewed_is_refused(overlay):
    overlay.in_source("mode", "x")
    overlay.start()
    overlay.in_merged("same", "reviewed")
    overlay.in_merged("swapped", "reviewed")
    os.symlink("same", overlay.in_merged("link"))
    os.chmod(overlay.in_merged("mode"), 0o700)
    reviewed = changes(overlay.stage)
    overlay.in_merged("swapped", "evil")
    overlay.in_merged("later", "evil")
    overlay.shell("ln -sfn later link; chmod 777 mode")
    done = apply(overlay.stage, reviewed=reviewed)
    changed = "It has changed since it was reviewed."
    assert done.applied == ("same",)
    assert done.rejected == {
        "later": "It was not reviewed.", "link": changed, "mode": changed, "swapped": changed,
    }  # fmt: skip
    assert apply(overlay.stage, reviewed=changes(overlay.stage)).rejected == {}


def test_a_way_to_settle_conflicts_must_be_one(overlay):
    overlay.start()
    with pytest.raises(InvalidInput, match="'ask', 'keep' or 'take'"):
        apply(overlay.stage, on_conflict="overwrite")


def test_a_sparse_file_stays_sparse_and_an_endless_one_is_refused(overlay):
    overlay.start()
    with open(overlay.in_merged("holes"), "wb") as file:
        file.write(b"begin")
        file.seek(200 << 20)
        file.write(b"end")
    os.truncate(overlay.in_merged("endless", ""), 1 << 43)
    done = apply(overlay.stage)
    assert done.applied == ("holes",)
    assert done.rejected == {"endless": "Its content cannot be read, or is one large hole."}
    found = os.stat(overlay.in_source("holes"))
    assert (found.st_size, found.st_blocks * 512 < 8 << 20) == ((200 << 20) + 3, True)


@pytest.mark.root
@pytest.mark.parametrize("options", [{}, {"metacopy": "on"}], ids=["plain", "metacopy"])
def test_what_was_renamed_survives_that_the_source_follows(options):
    """The sandbox has the content from the source only, by a redirect to a place that the apply removes."""
    with Overlay(options=options) as overlay:
        overlay.in_source("old/deep/f", "content")
        overlay.in_source("file", "content")
        os.symlink("deep/f", overlay.in_source("old/link"))
        os.mkdir(overlay.in_source("old/empty"))
        overlay.start()
        os.rename(overlay.in_merged("old"), overlay.in_merged("new"))
        os.rename(overlay.in_merged("file"), overlay.in_merged("renamed"))
        before = snapshot(overlay.merged)
        done = apply(overlay.stage)
        assert (done.conflicts, done.rejected) == ({}, {})
        assert snapshot(overlay.source) == before
        overlay.remount()
        assert snapshot(overlay.merged) == before
        assert changes(overlay.stage) == []
        assert apply(overlay.stage) == ((), {}, {})
        assert snapshot(overlay.source) == before


@pytest.mark.root
def test_a_renamed_directory_does_not_follow_what_comes_to_its_old_place(overlay):
    overlay.in_source("a/x/old", "0")
    overlay.start()
    overlay.shell("mv a b; mkdir -p a/x; echo 1 > a/x/new")
    before = snapshot(overlay.merged)
    apply(overlay.stage)
    assert snapshot(overlay.source) == before
    overlay.remount()
    assert snapshot(overlay.merged) == before
    assert changes(overlay.stage) == []


@pytest.mark.root
@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("options", [{}, {"metacopy": "on"}], ids=["plain", "metacopy"])
def test_what_vanishes_from_below_a_sandbox_is_not_removed_by_it(options, record):
    """The host moves a directory that the sandbox has under another name: that is no wish to delete anything."""
    with Overlay(options=options) as overlay:
        overlay.in_source("old/deep/f", "content")
        overlay.in_source("file", "content")
        overlay.start(record=record)
        os.rename(overlay.in_merged("old"), overlay.in_merged("new"))
        os.rename(overlay.in_merged("file"), overlay.in_merged("renamed"))
        os.rename(overlay.in_source("old"), overlay.in_source("new"))
        os.rename(overlay.in_source("file"), overlay.in_source("renamed"))
        before = snapshot(overlay.source)
        overlay.remount()
        for way in ("ask", "keep", "take"):
            assert apply(overlay.stage, on_conflict=way).applied == ()
            assert snapshot(overlay.source) == before


@pytest.mark.root
def test_what_another_mount_covers_is_left_alone(overlay):
    """A mount below the source is none of the sandbox's: it sees what is under it."""
    code = """
from tests.review.overlays import Overlay, snapshot
from atoll.engine import kernel
from atoll.review import apply

kernel.unshare(0x20000)
kernel.mount(None, "/", None, 0x44000)
with Overlay() as overlay:
    overlay.in_source("below/under", "x")
    overlay.in_source("file", "x")
    overlay.start()
    kernel.mount("none", overlay.in_source("below"), "tmpfs")
    overlay.in_source("../outside/bound", "precious")
    kernel.mount(overlay.in_source("../outside/bound"), overlay.in_source("file"), None, 0x1000)
    overlay.in_source("below/precious", "x")
    overlay.in_merged("below/under", "changed")
    overlay.in_merged("below/new", "new")
    overlay.in_merged("file", "new")
    overlay.in_merged("control", "new")
    before = snapshot(overlay.in_source("below")), snapshot(overlay.outside)
    done = apply(overlay.stage, on_conflict="take")
    assert done.applied == ("control",), done
    assert set(done.rejected) == {"below", "below/new", "below/under", "file"}, done
    assert (snapshot(overlay.in_source("below")), snapshot(overlay.outside)) == before
    kernel.umount(overlay.in_source("below"))
    kernel.umount(overlay.in_source("file"))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
