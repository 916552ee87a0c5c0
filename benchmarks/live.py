"""A live sandbox: a command, a cell, and its end."""

from __future__ import annotations

import subprocess

from atoll import Sandbox

from .measure import Figure, interleaved, median, milliseconds, say


def _destroy() -> float:
    sandbox = Sandbox.create()
    sandbox.run("echo kept > file")
    return milliseconds(sandbox.destroy)


def measure() -> list[Figure]:
    say("live: commands, cells, the end")
    with Sandbox.create() as sandbox:
        sandbox.run("true")
        sandbox.run_code("1")
        command, bare, cell = interleaved(
            150,
            0.0,
            lambda: milliseconds(lambda: sandbox.run("true")),
            lambda: milliseconds(lambda: subprocess.run(["/bin/sh", "-c", "true"], capture_output=True, check=True)),
            lambda: milliseconds(lambda: sandbox.run_code("1 + 1")),
        )
    (ended,) = interleaved(25, 0.1, _destroy)
    return [
        Figure('run("true"), live', median(command), "ms", "a bare subprocess", median(bare), 2.0),
        Figure("a warm cell", median(cell), "ms", "", None, None),
        Figure("destroy", median(ended), "ms", "", None, 10.0),
    ]
