"""`diff`, `apply` and `discard`: what a sandbox has changed of its source, on the command line."""

from __future__ import annotations

import json

import pytest

from atoll import Sandbox


@pytest.fixture
def source(tmp_path):
    for name, content in (("a.txt", "one\ntwo\n"), ("secrets/key", "precious\n"), ("out/x", "0\n")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.fixture
def changed(atoll, source):
    """The id of a sandbox that may write to one directory and has done so."""
    made = Sandbox.create(source=str(source), permissions="agent-safe")
    files = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    made.run("mkdir -p output; printf 'new\\n' > output/new; printf '\\033[31mred\\n' > output/evil", check=True)
    yield made.id
    made.destroy()
    assert all(path.read_bytes() == content for path, content in files.items())


def test_a_diff_is_shown_and_nothing_is_applied(atoll, changed, source):
    shown = atoll("diff", changed)
    assert (shown.code, shown.err) == (0, "")
    assert b"+++ b/output/new\n@@ -0,0 +1 @@\n+new\n" in shown.out
    assert b"\x1b" not in shown.out
    assert b"+\\x1b[31mred" in shown.out
    assert not (source / "output").exists()
    assert atoll("diff", changed, "--exit-code").code == 1
    assert atoll("diff", changed, "--exit-code", "a.txt").code == 0


def test_a_diff_in_short_and_for_programs(atoll, changed):
    lines = atoll("diff", changed[:9], "--stat").out.decode().splitlines()
    assert lines[-1] == " 3 paths changed, 2 insertions(+)"
    found = json.loads(atoll("diff", changed, "output/new", "--json").out)
    assert [(change["path"], change["kind"], change["level"]) for change in found] == [("output/new", "added", "write")]


def test_colours_are_for_terminals(atoll, changed):
    with atoll.terminal("diff", changed) as terminal:
        terminal.expect(rb"\x1b\[32m\+new")
        assert terminal.wait() == 0
    with atoll.terminal("diff", changed, "--no-color") as terminal:
        assert b"\x1b" not in terminal.expect(rb"\+new")
        assert terminal.wait() == 0


def test_an_apply_brings_a_selection_over(atoll, changed, source):
    done = atoll("apply", changed, "output/new", "a.txt", "--yes")
    assert (done.code, done.out) == (1, b"output\noutput/new\n")
    assert "a.txt: It has not changed." in done.err
    assert (source / "output/new").read_text() == "new\n"
    assert not (source / "output/evil").exists()
    done = atoll("apply", changed, "--json", "-y")
    assert done.code == 0
    assert json.loads(done.out) == {"applied": ["output/evil"], "conflicts": {}, "rejected": {}}
    nothing = atoll("apply", changed, "--yes")
    assert (nothing.code, nothing.out, nothing.err) == (0, b"", "atoll: There is nothing to apply.\n")


@pytest.mark.parametrize("command", ["apply", "discard"])
def test_without_a_terminal_nothing_is_done_unasked(atoll, changed, source, command):
    done = atoll(command, changed)
    sentence = f"Nobody can be asked here, without a terminal; `atoll {command} {changed} --yes` does not ask."
    assert done == (125, b"", f"atoll: {sentence}\n")
    assert not (source / "output").exists()
    assert atoll("diff", changed, "--exit-code").code == 1
    assert "--json asks nothing, and so it goes with --yes." in atoll("apply", changed, "--json").err


def test_on_a_terminal_an_apply_asks(atoll, changed, source):
    for answer, code in ((b"n\n", 1), (b"\n", 1), (b"y\n", 0)):
        with atoll.terminal("apply", changed) as terminal:
            assert b"output/new" in terminal.expect(rb"\[y/N\] ")
            assert not (source / "output").exists()
            terminal.type(answer)
            assert terminal.wait() == code
    assert (source / "output/new").exists()


def test_a_conflict_is_told_and_decided(atoll, changed, source):
    atoll("apply", changed, "output/new", "-y")
    Sandbox.connect(changed).run("printf 'newer\\n' > output/new", check=True)
    (source / "output/new").write_text("host\n")
    asked = atoll("apply", changed, "-y")
    assert (asked.code, asked.out) == (1, b"")
    assert "output/new: It has changed in the source since the sandbox started." in asked.err
    assert "Nothing was applied." in asked.err
    kept = atoll("apply", changed, "--on-conflict", "keep", "-y")
    assert (kept.code, kept.out) == (1, b"output/evil\n")
    assert (source / "output/new").read_text() == "host\n"
    taken = atoll("apply", changed, "--on-conflict", "take", "-y")
    assert (taken.code, taken.out) == (0, b"output/new\n")
    assert (source / "output/new").read_text() == "newer\n"
    assert atoll("apply", changed, "--on-conflict", "ours", "-y").code == 125


def test_a_discard_throws_everything_away(atoll, changed):
    assert atoll("discard", changed, "-y").code == 0
    assert atoll("diff", changed, "--exit-code").code == 0
    assert Sandbox.connect(changed).run("ls a.txt").stdout == "a.txt\n"


def test_without_a_source_there_is_nothing_to_review(atoll, kept):
    for words in (["diff", kept], ["apply", kept, "-y"]):
        done = atoll(*words)
        assert (done.code, done.out) == (125, b"")
        assert "made without a source" in done.err


def test_new_hidden_names_are_a_question_of_their_own(atoll, changed, source):
    Sandbox.connect(changed).run(
        "mkdir output/.new; echo 1 > output/.new/settings; touch output/.gitignore", check=True
    )
    with atoll.terminal("apply", changed) as terminal:
        terminal.expect(rb"Apply this\? \[y/N\] ")
        terminal.type(b"y\n")
        terminal.expect(rb"Apply them, too\? \[y/N\] ")
        terminal.type(b"n\n")
        assert terminal.wait() == 1
    assert (source / "output/.gitignore").exists()
    assert not (source / "output/.new").exists()
    refused = atoll("apply", changed, "--yes")
    assert refused.code == 1
    assert "--new-hidden" in refused.err
    assert not (source / "output/.new").exists()
    assert atoll("apply", changed, "--yes", "--new-hidden").code == 0
    assert (source / "output/.new/settings").read_text() == "1\n"
