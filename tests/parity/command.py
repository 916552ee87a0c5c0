"""The command line as it is used: the real `atoll`, in a process of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import atoll

SCRIPT = os.path.join(os.path.dirname(sys.executable), "atoll")
LONGEST = 120
# The package that is tested, also where another one is installed.
SOURCE = str(pathlib.Path(atoll.__file__).parent.parent)


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Cli:
    """Runs `atoll` with a wall as its default."""

    def __init__(self, wall):
        self._own = {"ATOLL_DRIVER": wall, "PYTHONPATH": SOURCE}

    def __call__(self, *words, input="", cwd=None, **env):
        done = subprocess.run(
            [SCRIPT, *words], input=input, capture_output=True, text=True, cwd=cwd, timeout=LONGEST, check=False,
            env={**os.environ, **self._own, **env},
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)
