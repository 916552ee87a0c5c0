"""Rules, review and codebases behind gVisor: what a rule closes is closed, and each attempt has a control."""

from __future__ import annotations

import os

import pytest

from atoll import Busy, Codebases, PathRule, Sandbox, Snapshots, Unsupported
from atoll.home import state_dir
from atoll.testing.waiting import eventually

from ..runsc import left_of, needs_runsc

pytestmark = [needs_runsc, pytest.mark.skipif(os.geteuid() != 0, reason="rules behind gVisor need root")]

FILES = {
    "read.txt": "read me\n",
    "shown/size.txt": "twelve bytes",
    "open/file.txt": "one\n",
    "open/locked.txt": "two\n",
    "open/secret": "TOKEN\n",
    "hidden/deep/key": "k\n",
}
RULES = [
    PathRule("**", "read"),
    PathRule("/shown/**", "view"),
    PathRule("/open/**", "write"),
    PathRule("/open/locked.txt", "read", kind="file"),
    PathRule("secret", "none", priority=1),
    PathRule("hidden", "none", kind="directory", priority=1),
]


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.fixture
def sandbox(source):
    with Sandbox.create("gvisor", source=source, permissions=RULES, lifetime=600) as made:
        yield made
        assert {name: (source / name).read_text() for name in FILES} == FILES
    eventually(lambda: left_of(made) == [], "nothing is left of it")


def inside(sandbox, path=""):
    """A path of its workspace as gVisor itself has it, whatever its kernel would let the code inside do."""
    steward = sandbox._core._record.handle.data["pid"]
    return f"/proc/{steward}/root{state_dir()}/gvisor/{sandbox.id}/view/{path}"


def test_what_is_closed_is_not_even_within_gvisor_s_own_reach(sandbox):
    for name in ("open/secret", "hidden"):
        assert not os.path.lexists(inside(sandbox, name))
    with open(inside(sandbox, "shown/size.txt"), "rb") as file:
        assert file.read() == bytes(12)
    with open(inside(sandbox, "read.txt"), encoding="ascii") as file:
        assert file.read() == FILES["read.txt"]
    for name in ("read.txt", "open/locked.txt"):
        with pytest.raises(OSError, match="Read-only"):
            os.truncate(inside(sandbox, name), 0)
    with open(inside(sandbox, "open/file.txt"), "w", encoding="ascii") as file:
        file.write("changed\n")
    assert sandbox.run("cat open/file.txt").stdout == "changed\n"
    assert [each.path for each in sandbox.diff()] == ["open/file.txt"]


@pytest.mark.parametrize(
    "attempt",
    [
        "cat {}",
        "ln -s /workspace/{} open/$$; cat open/$$",
        "ln {} open/h$$; cat open/h$$",
        "mv {} open/moved && cat open/moved",
        "cp {} /tmp/copy && cat /tmp/copy",
        "cd $(dirname {}) && cat ../$(basename $(dirname {}))/$(basename {})",
        "cat /proc/self/cwd/{}",
        "exec 3<> {} && cat <&3",
        "chmod 777 {}; cat {}",
        "truncate -s 4 {}; cat {}",
    ],
)
def test_no_way_leads_to_what_is_hidden_or_only_shown(sandbox, attempt):
    for name in ("open/secret", "hidden/deep/key", "shown/size.txt"):
        assert not sandbox.run(attempt.replace("{}", name)).stdout.strip("\0")
    assert sandbox.run(attempt.replace("{}", "open/file.txt")).stdout.startswith("one")


@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > {}",
        "echo x >> {}",
        "truncate -s 0 {}",
        "rm -f {}",
        "mv {} /tmp/gone",
        "mv open/other {}",
        "chmod 666 {}; echo x > {}",
        "ln -sf /tmp/elsewhere {}",
        "cp /etc/hostname {}",
        "mv open elsewhere; mkdir open; echo x > {}",
    ],
)
def test_nothing_that_may_only_be_read_is_changed(sandbox, attempt):
    sandbox.run("echo other > open/other", check=True)
    for name in ("read.txt", "open/locked.txt"):
        sandbox.run(attempt.replace("{}", name))
        assert sandbox.run(["cat", name]).stdout == FILES[name]
        sandbox.run("test -e open/other || echo other > open/other", check=True)
    sandbox.run(attempt.replace("{}", "open/file.txt"))
    assert sandbox.run("cat open/file.txt 2>&1; true").stdout != FILES["open/file.txt"] or "elsewhere" in attempt


def test_rules_hold_in_what_is_made_of_a_sandbox(sandbox, source):
    sandbox.run("echo mine > open/mine; rm open/file.txt", check=True)
    look = "cat open/mine read.txt; ls open; cat open/secret hidden/deep/key open/file.txt; echo x > read.txt"
    wanted = f"mine\n{FILES['read.txt']}locked.txt\nmine\n"
    name = "rules-" + os.urandom(4).hex()
    sandbox.snapshot(name)
    try:
        sandbox.run("echo later > open/later", check=True)
        with sandbox.fork() as twin:
            assert {each.path: each.kind for each in twin.diff()} == {
                "open/mine": "added",
                "open/later": "added",
                "open/file.txt": "deleted",
            }
        sandbox.rollback(name)
        assert sandbox.run(look).stdout == wanted
        with Sandbox.create("gvisor", snapshot=name) as again:
            assert again.run(look).stdout == wanted
            assert {each.path for each in again.diff()} == {"open/mine", "open/file.txt"}
        sandbox.stop()
        sandbox.resume()
        assert sandbox.run(look).stdout == wanted
        assert {each.path for each in sandbox.diff()} == {"open/mine", "open/file.txt"}
    finally:
        Snapshots("gvisor").delete(name)


def test_other_rules_for_a_snapshot_hold_for_what_was_changed_before(source):
    name = "stricter-" + os.urandom(4).hex()
    with Sandbox.create("gvisor", source=source, preset="full-access") as sandbox:
        sandbox.run("echo more >> open/secret; echo more >> read.txt; echo more >> open/file.txt", check=True)
        sandbox.snapshot(name)
    look = "cat read.txt open/file.txt; cat open/secret; echo x > read.txt; rm -f read.txt; cat read.txt"
    changed = f"{FILES['read.txt']}more\n"
    try:
        for _ in range(2):
            with Sandbox.create("gvisor", snapshot=name, permissions=RULES) as again:
                assert again.run(look).stdout == f"{changed}{FILES['open/file.txt']}more\n{changed}"
                again.run("echo mine > open/file.txt", check=True)
                again.stop()
                again.resume()
                assert again.run(look).stdout == f"{changed}mine\n{changed}"
        with Sandbox.create("gvisor", snapshot=name) as as_it_was:
            assert as_it_was.run("cat open/secret").stdout == f"{FILES['open/secret']}more\n"
    finally:
        Snapshots("gvisor").delete(name)


def test_a_twin_knows_what_the_source_was_when_its_parent_began(source):
    with Sandbox.create("gvisor", source=source, preset="full-access") as parent:
        parent.run("echo theirs > read.txt; echo theirs > open/file.txt", check=True)
        parent.diff()
        (source / "read.txt").write_text("ours\n")
        with parent.fork() as twin:
            outcome = twin.apply()
            assert (set(outcome.conflicts), outcome.applied) == ({"read.txt"}, ())
            assert twin.apply(on_conflict="keep").applied == ("open/file.txt",)
        assert (source / "read.txt").read_text() == "ours\n"


def test_what_runs_is_not_ended_by_a_discard_unless_it_is_said(source):
    with Sandbox.create("gvisor", source=source, preset="full-access") as sandbox:
        sandbox.run_code("kept = 1")
        sandbox.run("echo x > read.txt; echo kept > /tmp/kept", check=True)
        with pytest.raises(Busy, match="started anew"):
            sandbox.discard()
        assert sandbox.run_code("kept").text == "1"
        assert [each.path for each in sandbox.diff()] == ["read.txt"]
        (source / "read.txt").write_text("ours\n")
        sandbox.discard(force=True)
        assert sandbox.diff() == []
        assert sandbox.run("cat read.txt /tmp/kept").stdout == "ours\nkept\n"
        # It knows the source as it was then.
        sandbox.run("echo theirs > read.txt", check=True)
        assert sandbox.apply().applied == ("read.txt",)
        assert sandbox.run_code("1 + 1").text == "2"


def test_sandboxes_of_a_codebase_share_it_and_an_apply_is_its_next_version(tmp_path):
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "secret.key").write_text("hidden\n")
    made = Codebases().create("gvisor-" + os.urandom(4).hex(), tmp_path)
    name = "codebase-" + os.urandom(4).hex()
    try:
        wishes = {"codebase": made.id, "permissions": "development"}
        with Sandbox.create("gvisor", **wishes) as one, Sandbox.create("gvisor", **wishes) as two:
            assert one.run("cat file; ls").stdout == two.run("cat file; ls").stdout == "one\nfile\n"
            one.run("echo two > file", check=True)
            one.snapshot(name)
            with one.fork() as twin:
                assert twin.run("cat file").stdout == "two\n"
            assert [change.path for change in one.diff()] == ["file"]
            assert one.apply().applied == ("file",)
            assert two.run("cat file").stdout == "one\n"
        assert Codebases().get(made.id).version == 2
        with Sandbox.create("gvisor", snapshot=name) as again:
            assert again.run("cat file; ls").stdout == "two\nfile\n"
        with Sandbox.create("gvisor", codebase=made.id, preset="full-access") as newest:
            assert newest.run("cat file secret.key").stdout == "two\nhidden\n"
    finally:
        Snapshots("gvisor").delete(name)
        Codebases().delete(made.id)


def test_other_rules_while_it_runs_are_refused_with_what_to_do(sandbox):
    with pytest.raises(Unsupported, match="cannot be changed while it runs") as caught:
        sandbox.set_permissions("full-access")
    assert "snapshot" in caught.value.hint
    assert sandbox.run("cat open/secret; cat read.txt").stdout == FILES["read.txt"]
