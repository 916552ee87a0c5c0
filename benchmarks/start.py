"""What a fresh process pays: the import, the first run, the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from atoll import Sandbox

from .measure import BARE, Figure, interleaved, median, milliseconds, run_quietly, say

CLI = str(Path(sys.executable).with_name("atoll"))


def measure() -> list[Figure]:
    say("start: imports and the command line")
    Sandbox.create().destroy()
    timed = [
        [sys.executable, "-c", "import atoll"],
        [sys.executable, "-c", "import atoll; atoll.run('echo hi')"],
        [CLI, "run", "echo hi"],
        [CLI, "--help"],
        BARE,
    ]
    for argv in timed:
        run_quietly(argv)
    seen = interleaved(15, 0.05, *(lambda argv=argv: milliseconds(lambda: run_quietly(argv)) for argv in timed))  # type: ignore[misc]
    imported, first, command, helped, bare = map(median, seen)
    return [
        Figure("import atoll, above bare Python", imported - bare, "ms", "", None, 30.0),
        Figure('first sync run("echo hi"), above bare Python', first - bare, "ms", "", None, 70.0),
        Figure('atoll run "echo hi"', command, "ms", "python3 -c pass", bare, 7.0),
        Figure("atoll --help", helped, "ms", "python3 -c pass", bare, 5.0),
    ]
