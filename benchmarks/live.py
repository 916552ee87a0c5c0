"""A live sandbox: a command, and its end."""

from __future__ import annotations

import subprocess

from atoll import Sandbox

from .measure import Figure, interleaved, median, milliseconds, say


def _destroy() -> float:
    sandbox = Sandbox.create()
    sandbox.run("echo kept > file")
    return milliseconds(sandbox.destroy)


def measure() -> list[Figure]:
    say("live: commands, the end")
    with Sandbox.create() as sandbox:
        sandbox.run("true")
        command, bare = interleaved(
            150,
            0.0,
            lambda: milliseconds(lambda: sandbox.run("true")),
            lambda: milliseconds(lambda: subprocess.run(["/bin/sh", "-c", "true"], capture_output=True, check=True)),
        )
    (ended,) = interleaved(25, 0.1, _destroy)
    return [
        Figure('run("true"), live', median(command), "ms", "a bare subprocess", median(bare), 2.0),
        Figure("destroy", median(ended), "ms", "", None, 10.0),
    ]
