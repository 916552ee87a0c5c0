"""Files that are made to break a reviewer: too large, too many, too deep, closed, or full of signs for a terminal."""

from __future__ import annotations

import os
import resource
import subprocess
import time

import pytest
from tests import thorough

from atoll import SandboxError
from atoll.review import apply, changes
from atoll.review.content import Allowance
from atoll.review.lines import changed_blocks
from atoll.review.text import format_diff, format_stat
from atoll.types import Change

from .overlays import IN_MEMORY, Overlay, snapshot


@pytest.fixture
def memory():
    with Overlay(where=IN_MEMORY) as made:
        yield made.start()


def test_ten_thousand_directories_within_each_other(memory):
    """No path reaches the innermost; what is beyond the reach is told and refused, and the rest comes over."""
    here = os.open(memory.merged, os.O_RDONLY)
    for _ in range(10_000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    memory.in_merged("control", "x")
    try:
        found = changes(memory.stage)
        assert 200 < len(found) < 1000
        done = apply(memory.stage, ["control"])
        assert done.applied == ("control",)
        done = apply(memory.stage)
        assert list(done.rejected.values()) == ["It is nested too deeply."]
        assert len(done.applied) == len(found) - 2
    finally:
        # The tools of Python give up on a tree of this depth.
        for root in (memory.source, memory.home):
            subprocess.run(["rm", "-rf", f"{root}/d", f"{root}/upper0/d"], check=True)


def test_very_many_files_are_listed_in_bounded_time(memory):
    """A hundred thousand, or a sample of them."""
    directories = thorough.amount(100, 15)
    started = time.process_time()
    for number in range(directories):
        os.mkdir(memory.in_merged(f"d{number}"))
        for file in range(1000):
            os.close(os.open(memory.in_merged(f"d{number}/{file}"), os.O_CREAT))
    made = time.process_time() - started
    started = time.process_time()
    found = changes(memory.stage)
    assert len(found) == directories * 1001
    assert time.process_time() - started < 20 * made + 30


def test_a_gigabyte_is_compared_but_not_shown(memory):
    path = memory.in_merged("big", "begin\n")
    os.truncate(path, 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (change,) = changes(memory.stage)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (change.size, change.diff) == (1 << 30, None)
    assert grown < 100 << 10, "in kilobytes"


def test_files_that_claim_exabytes_cost_nothing(memory):
    for number in range(50):
        os.truncate(memory.in_merged(f"f{number}", ""), (1 << 62) + number)
    started = time.process_time()
    found = changes(memory.stage)
    assert [change.digest for change in found] == [None] * 50
    assert time.process_time() - started < 10


def test_many_small_holes_cannot_add_up_to_a_long_time(memory):
    """Each is small enough to be read, all together are not."""
    for number in range(100):
        os.truncate(memory.in_merged(f"f{number}", ""), 256 << 20)
    found = changes(memory.stage)
    read = [change for change in found if change.digest is not None]
    assert len(found) == 100
    assert 0 < len(read) <= 16


def test_the_names_of_one_file_cannot_add_up_to_a_long_time_or_a_full_disk(memory, monkeypatch):
    """A name costs the sandbox nothing, and each was read, and copied by an apply, as a file of its own."""
    monkeypatch.setattr("atoll.review.comparing.Allowance", lambda: Allowance(spare=64 << 20))
    path = memory.in_merged("f", b"x" * (1 << 20))
    for number in range(120):
        os.link(path, memory.in_merged(f"n{number}"))
    found = changes(memory.stage)
    read = [change for change in found if change.digest is not None]
    assert len(found) == 121
    assert len(read) == 65, "the file once, and as often as there is to spare"
    assert len(apply(memory.stage).applied) == 65


def test_long_names_of_one_file_cannot_fill_the_memory(memory, monkeypatch):
    monkeypatch.setattr("atoll.review.candidates.MOST_TEXT", 1 << 20)
    here = os.path.join(*["d" * 250] * 12)
    path = memory.in_merged(f"{here}/f", "")
    assert changes(memory.stage), "the control"
    for number in range(400):
        os.link(path, memory.in_merged(f"{here}/n{number}"))
    with pytest.raises(SandboxError, match="names"):
        changes(memory.stage)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([b"%d" % (n % 1000) for n in range(10**6)], [b"%d" % (n % 997) for n in range(10**6)]),
        ([b"%d" % n for n in range(10**5)], [b"%d" % n for n in reversed(range(10**5))]),
        ([b"a", b"b"] * 10**5, [b"b", b"a", b"a"] * 10**5),
        ([b"%d" % (n // 2) for n in range(10**5)], [b"%d" % (n // 2 + n % 3) for n in range(10**5)]),
    ],
    ids=["cycles", "reversed", "pairs", "doubles"],
)
def test_no_text_makes_a_diff_slow(old, new):
    started = time.process_time()
    blocks = changed_blocks(old, new)
    assert time.process_time() - started < 20
    assert blocks


def test_a_file_of_a_million_lines_gets_a_diff(memory):
    memory.in_source("f", "x\n" * 10**6)
    with Overlay(where=IN_MEMORY) as overlay:
        overlay.source = memory.source
        overlay.start()
        overlay.in_merged("f", "x\n" * 500_000 + "y\n" + "x\n" * 500_000)
        (change,) = changes(overlay.stage)
    assert (change.added_lines, change.removed_lines) == (1, 0)
    assert len(change.diff) < 200


def test_what_nobody_may_read_is_told_and_refused():
    """As root everything can be read; as another user the sandbox can close a file, and its directory."""
    with Overlay() as overlay:
        overlay.in_source("d/f", "0")
        overlay.start()
        overlay.in_merged("closed", "1")
        overlay.in_merged("d/g", "1")
        overlay.in_merged("fine", "1")
        os.chmod(overlay.in_merged("closed"), 0)
        os.chmod(overlay.in_merged("d"), 0)
        before = snapshot(overlay.source)
        done = apply(overlay.stage)
        if os.geteuid() == 0:
            assert set(done.applied) == {"closed", "d/g", "fine"}
        else:
            assert done.applied == ("fine",)
            assert set(done.rejected) == {"closed", "d"}
            assert before.items() <= snapshot(overlay.source).items()
        os.chmod(overlay.in_merged("d"), 0o700)


EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\r+ok\x08\x7f"


def test_a_terminal_is_not_commanded(memory):
    memory.in_merged("evil\x1b[31m\nname", f"{EVIL}\nplain\n")
    memory.in_merged("dir\x07/file", "x\n")
    os.symlink(EVIL, memory.in_merged("link"))
    found = changes(memory.stage)
    assert any("\x1b" in change.diff for change in found if change.diff), "the change itself has what is there"
    for text in (format_diff(found), format_stat(found)):
        assert all(sign.isprintable() or sign in "\n\t" for sign in text)
    assert "\\x1b[2J" in format_diff(found)
    assert "+plain" in format_diff(found)


def test_a_content_cannot_pretend_to_be_another_file(memory):
    """A line that looks like the head of the next diff is marked as a line of content."""
    memory.in_merged("a", "x\rdiff --git a/b b/b\n--- a/b\n+++ b/b\u2028diff --git a/c b/c\n")
    heads = [line for line in format_diff(changes(memory.stage)).split("\n") if line.startswith("diff --git")]
    assert heads == ["diff --git a/a b/a"]


def test_colours_are_only_there_when_asked_for(memory):
    memory.in_merged("a", "x\n")
    found = changes(memory.stage)
    assert "\x1b[32m+x\x1b[0m" in format_diff(found, color=True)
    assert "\x1b" not in format_diff(found)
    assert "\x1b" not in format_stat(found)


def test_the_sum_of_changes_is_as_git_writes_it(memory):
    memory.in_merged("long", "".join(f"{number}\n" for number in range(500)))
    memory.in_merged("short", "x\n")
    memory.in_merged("binary", b"\0" * 10)
    memory.in_merged("dir/x" * 30, "")
    lines = format_stat(changes(memory.stage), width=60).split("\n")
    assert all(len(line) <= 60 + 40 for line in lines)
    table = {line.split("|")[0].strip(): line.split("|")[1].strip() for line in lines if "|" in line}
    assert table["long"].startswith("500 ++++")
    assert table["short"] == "1 +"
    assert table["binary"] == "Bin 10 bytes"
    assert lines[-1].endswith("501 insertions(+)")


def test_what_is_not_applied_says_so():
    change = Change(
        "a", "modified", "file", 0o644, 0o4755, 1, "x", "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-0\n+1\n", "read", 1, 1
    )
    text = format_diff([change])
    assert "old mode 100644\nnew mode 104755" in text
    assert "not applied: its level is 'read'" in text
    assert "not applied: level 'read'" in format_stat([change])
    assert (format_diff([]), format_stat([])) == ("", "")


@pytest.mark.parametrize(
    ("path", "kind", "type", "marked"),
    [
        (".git/hooks/post-commit", "added", "file", True),
        ("sub/.VSCode/tasks.json", "modified", "file", True),
        ("pipe", "added", "other", True),
        (".git/hooks/post-commit", "deleted", "file", False),
        ("src/app.py", "added", "file", False),
    ],
)
def test_what_is_never_applied_says_so(path, kind, type, marked):
    change = Change(path, kind, type, None, 0o644, 1, "x", "--- a\n+++ b\n@@ -0,0 +1 @@\n+1\n", added_lines=1)
    assert ("never applied" in format_diff([change])) is marked
    assert ("never applied)" in format_stat([change])) is marked


def test_git_takes_the_diff(memory, tmp_path):
    memory.in_merged("dir/new file", "one\ntwo")
    memory.in_merged('quote"d\tname', "x\n")
    memory.in_merged("tool", "#!/bin/sh\n")
    os.chmod(memory.in_merged("tool"), 0o755)
    os.symlink("tool", memory.in_merged("link"))
    text = format_diff(changes(memory.stage)) + "\n"
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text.encode(), check=True)
    assert (tmp_path / "dir/new file").read_text() == "one\ntwo"
    assert (tmp_path / 'quote"d\tname').read_text() == "x\n"
    assert os.readlink(tmp_path / "link") == "tool"
    assert os.access(tmp_path / "tool", os.X_OK)
