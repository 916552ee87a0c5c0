"""What the command line's page and the tour promise is what there is."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from atoll.cli import COMMANDS
from atoll.cli.languages import LANGUAGES

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "command-line.md").read_text()
EXAMPLES = re.findall(
    r"^(?:\S+ \S+ \| )?(atoll .*)$", "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)), re.MULTILINE
)


def test_the_page_names_every_command():
    table = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert table == list(COMMANDS)


def test_the_page_names_every_language_with_its_suffixes():
    for language in LANGUAGES:
        row = next(line for line in PAGE.splitlines() if line.startswith("|") and f"| `{language.name}`" in line)
        assert re.findall(r"`([a-z0-9]+)`", row) == list(language.names)
        assert re.findall(r"`(\.[a-z]+)`", row) == list(language.suffixes)


@pytest.mark.parametrize("name", sorted({example.split()[1] for example in EXAMPLES}))
def test_the_options_of_the_examples_exist(atoll, name):
    text = atoll(name, "--help").out.decode()
    for example in EXAMPLES:
        words = shlex.split(example, comments=True)
        if words[1] == name:
            for option in [word for word in words[: (*words, "--").index("--")] if word.startswith("-")]:
                assert re.search(rf"^  .*(?<!\S){option}\b", text, re.MULTILINE), example


def test_the_tour_works(atoll):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "quickstart.py"], env=atoll.env(), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("hello from atoll, as user", "mean: 1.73", "timed_out=True", "still answers: yes", "is left: None"):
        assert line in done.stdout
