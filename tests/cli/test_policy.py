"""`atoll policy`, and the options that give rules to a sandbox. No sandbox is made here."""

from __future__ import annotations

import json
import os
import re

import pytest

from atoll.cli.options import add_sandbox_options, refuse_wishes, wishes
from atoll.cli.parsing import Parser, UsageError
from atoll.errors import InvalidInput
from atoll.policy.presets import get_preset
from atoll.policy.rules import Matcher

FILES = ["README.md", ".env", ".git/config", ".git/hooks/pre-commit", "secrets/api.txt", "src/app.py", "src/lib/a.key",
         "src/lib/b.py", "node_modules/x/y.js"]  # fmt: skip


@pytest.fixture
def project(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "output").mkdir()
    (tmp_path / "link").symlink_to("src")
    return str(tmp_path)


def test_check_draws_the_tree_with_levels(atoll, project):
    done = atoll("policy", "check", project, "--ignore", "node_modules/")
    assert (done.code, done.err) == (0, "")
    assert (
        done.out.decode()
        == f"""\
read    {project}
none    ├── .env
none    ├── .git/  (3 below, all hidden)
read    ├── README.md
read    ├── link@
ignored ├── node_modules/
write   ├── output/
none    ├── secrets/  (1 below, all hidden)
read    └── src/
read        ├── app.py
read        └── lib/
none            ├── a.key
read            └── b.py

15 paths by agent-safe: 1 write, 6 read, 0 view, 8 none, 1 ignored
"""
    )


def test_a_directory_on_the_way_to_something_visible_is_drawn_as_visible(atoll, project):
    done = atoll("policy", "check", project, "--allow", "read:src/lib/b.py", "--depth", "2")
    lines = done.out.decode().splitlines()
    assert lines[0] == f"view    {project}"
    assert "view    └── src/" in lines
    assert "view        └── lib/  (2 below)" in lines
    assert "none        ├── app.py" in lines


def test_depth_zero_is_the_directory_alone_and_all_is_counted(atoll, project):
    lines = atoll("policy", "check", project, "--depth", "0").out.decode().splitlines()
    assert lines[0] == f"read    {project}  (18 below)"
    assert lines[2].startswith("18 paths by agent-safe: 1 write, 9 read")


def test_rules_that_decide_about_nothing_are_named(atoll, project):
    flags = ["--allow", "read:src", "--allow", "write:nowhere/**", "--allow", "view:src/*.py"]
    done = atoll("policy", "check", project, *flags)
    assert done.code == 0
    assert done.err.splitlines() == [
        "atoll: The rule 'nowhere/**' (write) matches nothing here.",
        "atoll: The rule 'src/*.py' (view) matches 1 path and decides about none: for src/app.py 'src' (read) wins.",
    ]
    assert atoll("policy", "check", project).err == "", "what a preset is about need not be there"


def test_check_as_json_has_every_path_with_the_rule_that_decides(atoll, project):
    done = atoll(
        "policy", "check", project, "--hide", "*.md", "--hide", "nothing", "--ignore", "/node_modules", "--json"
    )
    told = json.loads(done.out)
    assert told["directory"] == project
    assert told["counts"] == {"write": 1, "read": 5, "view": 0, "none": 9, "ignored": 1}
    assert told["warnings"] == ["The rule 'nothing' (none) matches nothing here."]
    paths = {each["path"]: each for each in told["paths"]}
    assert paths["README.md"] == {
        "path": "README.md", "kind": "file", "ignored": False, "level": "none",
        "rule": {"pattern": "*.md", "level": "none", "kind": "glob", "priority": 100},
    }  # fmt: skip
    assert paths[""]["level"] == "read"
    assert paths["link"]["kind"] == "link"
    assert paths["node_modules"]["ignored"] is True
    assert "node_modules/x" not in paths
    assert [rule["pattern"] for rule in told["rules"]][-2:] == ["*.md", "nothing"]


HOSTILE = ["a\nb", "\x1b[31mred", "\x9b31m", "\u202egnp.exe", os.fsdecode(b"\xff\xfe"), "tab\there", "del\x7f"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_no_name_reaches_the_terminal_with_anything_that_a_terminal_obeys(atoll, tmp_path, flags):
    for name in [*HOSTILE, "plain é 漢"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("x")
    done = atoll("policy", "check", str(tmp_path), "--hide", "\x1b]0;title\x07", "--hide", "/plain*", *flags)
    text = done.out.decode()
    assert all(line.isprintable() for line in text.splitlines())
    assert all(line.isprintable() for line in done.err.splitlines())
    if flags:
        assert {each["path"] for each in json.loads(text)["paths"]} >= {*HOSTILE, "plain é 漢"}
    else:
        assert "'\\x1b[31mred'/" in text
        assert "plain é 漢" in text
        assert len(text.splitlines()) == 2 + 1 + 2 * len(HOSTILE) + 1
    explained = atoll("policy", "explain", str(tmp_path), HOSTILE[1])
    assert explained.out.decode().splitlines()[0] == "'\\x1b[31mred': read"


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(atoll, project, env, coloured):
    terminal = atoll.terminal("policy", "check", project, env=env)
    seen = terminal.expect(rb"18 paths by agent-safe: .*\n")
    assert terminal.wait() == 0
    assert (b"\x1b[32mwrite" in seen) == (b"\x1b[31mnone" in seen) == coloured
    assert b"\x1b" not in atoll("policy", "check", project).out


def test_a_directory_that_cannot_be_listed_is_told_and_the_rest_is_shown(atoll, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(20):  # longer than the kernel takes in one path
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    (tmp_path / "z").write_text("x")
    done = atoll("policy", "check", str(tmp_path), cwd="/")
    assert done.code == 0
    assert re.search(rb"cannot be listed: File name too long", done.out)
    assert b"z\n" in done.out


@pytest.mark.parametrize(
    ("path", "flags", "level", "words"),
    [
        ("secrets/api.txt", [], "none", "The glob rule 'secrets/' of priority 100 gives it 'none'"),
        ("/src/app.py", [], "read", "The glob rule '**' gives it 'read'; no other rule matches."),
        ("./output/new.txt", [], "write", "it beats the glob rule '**', which has no literal character"),
        ("src", ["--allow", "read:src/app.py"], "view", "Something below it is visible"),
        ("README.md", ["--allow", "read:src/app.py"], "none", "No rule matches it"),
        ("src/app.py", ["--ignore", "src/"], "none", "It is ignored"),
        (".", [], "read", "The glob rule '**'"),
    ],
)
def test_explain_says_the_level_and_why(atoll, project, path, flags, level, words):
    done = atoll("policy", "explain", project, path, *flags)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.decode().splitlines()
    assert first.endswith(f": {level}")
    assert words in second
    told = json.loads(atoll("policy", "explain", project, path, *flags, "--json").out)
    assert told["level"] == level
    assert told["why"] == second


def test_presets_are_listed_with_their_rules(atoll):
    text = atoll("policy", "presets").out.decode()
    assert text.startswith("agent-safe\n  read   **\n  write  /output/**\n")
    told = json.loads(atoll("policy", "presets", "--json").out)
    assert [rule["pattern"] for rule in told["read-only"]] == ["**"]
    assert list(told) == ["agent-safe", "development", "read-only", "full-access", "view-only"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["policy"], "required: ACTION"),
        (["policy", "check"], "Say `atoll policy check DIR`"),
        (["policy", "chek", "."], "Say `atoll policy check DIR`"),
        (["policy", "explain", "."], "Say `atoll policy check DIR`"),
        (["policy", "presets", "."], "Say `atoll policy check DIR`"),
        (["policy", "check", "/nowhere/at/all"], "'/nowhere/at/all' is not a directory"),
        (["policy", "check", "/etc/passwd"], "is not a directory"),
        (["policy", "check", ".", "--preset", "agent"], "There is no preset 'agent'; the presets are agent-safe"),
        (["policy", "check", ".", "--allow", "src"], "'src' does not begin with a level"),
        (["policy", "check", ".", "--hide", "a/../b"], "climbs with '..'"),
        (["policy", "check", ".", "--ignore", "a\nb"], "a pattern is one line"),
        (["policy", "check", ".", "--rules", "/nowhere.toml"], "--rules /nowhere.toml: No such file or directory."),
        (["policy", "check", ".", "--rules", "/etc/passwd"], "--rules /etc/passwd is no TOML"),
        (["policy", "check", ".", "--rules", "/dev/zero"], "the file is longer than"),
        (["policy", "check", ".", "--depth", "-1"], "--depth"),
        (["policy", "explain", ".", "a/../b"], "climbs with '..'"),
    ],
)
def test_what_is_wrong_gets_a_sentence(atoll, project, words, sentence):
    done = atoll(*words, cwd=project)
    assert done.code == 125
    assert done.out == b""
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.fixture
def rules_file(tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text(
        '[permissions]\npreset = "agent-safe"\n[[permissions.rules]]\npattern = "src/**"\nlevel = "write"\n'
    )
    return str(file)


def asked(*words):
    parser = Parser("try", "", "", "")
    add_sandbox_options(parser)
    return parser.parse_args(words)


def level(made, path):
    return Matcher(made["permissions"].rules).level(path)


def test_a_sandbox_has_no_rules_unless_they_are_asked_for():
    assert "permissions" not in wishes(asked())
    assert "ignore" not in wishes(asked())


def test_the_options_of_a_sandbox_become_its_permissions_and_ignores(rules_file):
    assert wishes(asked("--preset", "agent-safe"))["permissions"] == get_preset("agent-safe")
    made = wishes(asked("--allow", "read:src/**", "--allow", "write:out/", "--hide", "**/.env*"))
    assert [level(made, path) for path in ("src/a", "out/b", "src/.env", "c")] == ["read", "write", "none", "none"]
    made = wishes(asked("--rules", rules_file, "--hide", "src/private"))
    assert [level(made, path) for path in ("src/a", "src/private/b", ".git/x", "c")] == [
        "write",
        "none",
        "none",
        "read",
    ]
    assert wishes(asked("--ignore", "a/", "--ignore", "!b"))["ignore"] == ("a/", "!b")


def test_options_that_contradict_each_other_are_refused(rules_file):
    with pytest.raises(InvalidInput, match="not both"):
        wishes(asked("--preset", "read-only", "--rules", rules_file))


def test_a_sandbox_that_exists_takes_no_new_rules():
    args = asked("--preset", "read-only", "--ignore", "a")
    args.id = "abc"
    with pytest.raises(UsageError, match="leave out what is for a new one: permissions, ignore"):
        refuse_wishes(args)
