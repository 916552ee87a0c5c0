"""What the command line's page and the tour promise is what there is."""

from __future__ import annotations

import importlib
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from atoll.cli import COMMANDS
from atoll.cli.languages import LANGUAGES
from atoll.cli.parsing import Parser, UsageError

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "command-line.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples():
    """The words of every `atoll …` in the shell blocks of all pages."""
    for page in PAGES:
        for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                yield from commands(line.removeprefix("$ "))


def commands(line):
    """`echo a | atoll run b ; atoll list` has two."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    words = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";|&"):
            if words[:1] == ["atoll"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


EXAMPLES = list(examples())


def test_the_page_names_every_command():
    table = re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE)
    assert table == list(COMMANDS)


def test_the_page_names_every_language_with_its_suffixes():
    for language in LANGUAGES:
        row = next(line for line in PAGE.splitlines() if line.startswith("|") and f"| `{language.name}`" in line)
        assert re.findall(r"`([a-z0-9]+)`", row) == list(language.names)
        assert re.findall(r"`(\.[a-z]+)`", row) == list(language.suffixes)


class Parsed(Exception):
    """The command line makes sense; nothing of it has run."""


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_the_examples_of_all_pages_are_command_lines(words, monkeypatch):
    name, *rest = words
    module = importlib.import_module(f"atoll.cli.{name.replace('-', '_')}")
    for method in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(Parser, method, parse_only(getattr(Parser, method)))
    with pytest.raises(Parsed):
        module.main(rest)


def parse_only(method):
    def parse(*arguments):
        method(*arguments)
        raise Parsed

    return parse


def test_a_command_line_that_makes_no_sense_would_be_found(monkeypatch):
    module = importlib.import_module("atoll.cli.run")
    monkeypatch.setattr(Parser, "parse_intermixed_args", parse_only(Parser.parse_intermixed_args))
    with pytest.raises(UsageError):
        module.main(["--kep", "ls"])
    assert list(commands("echo hi | atoll run 'a; b' ; atoll list  # all")) == [["run", "a; b"], ["list"]]
    assert {"repl", "exec", "run", "shell", "cp"} <= {words[0] for words in EXAMPLES}


def test_the_tour_works(atoll):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "quickstart.py"], env=atoll.env(), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("hello from atoll, as user", "mean: 1.73", "timed_out=True", "still answers: yes", "is left: None"):
        assert line in done.stdout


def test_the_tour_of_a_project_works(atoll):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "codebase.py"], env=atoll.env(), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for line in (".env is none to it", "modified src/prices.py  +1 -1", "[1.5, 2.0] ['prices.py']", "[1.5, 2.0, 2]"):
        assert line in done.stdout
