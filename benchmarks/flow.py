"""How fast things leave a sandbox: printed output through callbacks, and a large array out of a variable."""

from __future__ import annotations

import resource

from atoll import Sandbox

from .measure import Figure, median, milliseconds, say

OUTPUT = 10_000_000
ARRAY = 100_000_000
ROUNDS = 9

BLOCKS = f"block = 'x' * 99_999\nfor _ in range({OUTPUT} // 100_000): print(block)"
LINES = f"line = 'x' * 99\nfor _ in range({OUTPUT} // 100): print(line)"


def _printed(sandbox: Sandbox, code: str) -> float:
    """Milliseconds until a callback has had all of it."""
    seen = 0

    def hear(text: str) -> None:
        nonlocal seen
        seen += len(text)

    def run() -> None:
        nonlocal seen
        seen = 0
        sandbox.run_code(code, on_stdout=hear)
        if seen != OUTPUT:
            raise RuntimeError(f"{seen} characters came of {OUTPUT}")

    run()
    return median([milliseconds(run) for _ in range(ROUNDS)])


def _array(value: str) -> float:
    """Milliseconds until a variable of so many bytes is here."""
    with Sandbox.create(packages=["numpy"], resources={"memory": "2G"}) as sandbox:
        done = sandbox.run_code(f"import numpy\ndata = {value}")
        if done.error:
            raise RuntimeError(done.error.traceback)

        def get() -> None:
            got = sandbox.variables.get("data")
            if memoryview(got).nbytes != ARRAY:
                raise RuntimeError("a part is missing")

        get()
        return median([milliseconds(get) for _ in range(9)])


def measure() -> list[Figure]:
    say("flow: output and variables")
    with Sandbox.create(resources={"memory": "2G"}) as sandbox:
        sandbox.run_code("1")
        _printed(sandbox, BLOCKS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        blocks, lines = _printed(sandbox, BLOCKS), _printed(sandbox, LINES)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    array = _array(f"numpy.ones({ARRAY} // 8)")
    plain = _array(f"bytes({ARRAY})")
    return [
        Figure("10 MB printed in blocks of 100 kB, through a callback", blocks, "ms", "", None, OUTPUT / 200e6 * 1e3),
        Figure("the same as 100,000 lines", lines, "ms", "", None, None),
        Figure("growth of the client's memory meanwhile", grown, "MB", "", None, 32.0),
        Figure("a numpy array of 100 MB out of a variable", array, "ms", "", None, ARRAY / 500e6 * 1e3),
        Figure("100 MB of bytes", plain, "ms", "", None, None),
    ]
