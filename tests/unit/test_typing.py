"""What a type checker says of user code."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
USAGE = ROOT / "tests" / "unit" / "typed_usage.py"


@pytest.mark.timeout(600)
def test_mypy_catches_wrong_calls_and_takes_right_ones():
    """With the settings and the cache of `make lint`, so that it is quick after that."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(USAGE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = {int(line): what for line, what in re.findall(r"typed_usage\.py:(\d+): error: (.*)", done.stdout)}
    wanted = {}
    for number, line in enumerate(USAGE.read_text().splitlines(), 1):
        if "  # E: " in line:
            wanted[number] = line.partition("  # E: ")[2]
    assert told.keys() == wanted.keys(), done.stdout
    for number, words in wanted.items():
        assert words in told[number]
