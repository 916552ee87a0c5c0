"""Create with numpy and pandas imported ahead, to a first DataFrame, beside create without packages."""

from __future__ import annotations

import time
from collections.abc import Callable

from atoll import Sandbox

from .measure import Figure, interleaved, median, say

PACKAGES = ["numpy", "pandas"]
PLAIN = "{'a': [1, 2], 'b': [3, 4]}"
FRAME = f"import pandas as pd; pd.DataFrame({PLAIN})"
PATIENCE = 60.0


def _first(code: str, packages: list[str]) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        sandbox = Sandbox.create(packages=packages)
        execution = sandbox.run_code(code)
        seen = (time.perf_counter() - start) * 1e3
        sandbox.destroy()
        if not execution.success or execution.text is None:
            raise RuntimeError(execution.error)
        return seen

    return once


def _await_nursery() -> None:
    """Until the packages are imported ahead; the first sandboxes after a build import them themselves."""
    deadline = time.monotonic() + PATIENCE
    ready = 0
    while ready < 8:
        with Sandbox.create(packages=PACKAGES) as sandbox:
            ready += sandbox.run_code("import sys; 'pandas' in sys.modules").text == "True"
        if time.monotonic() > deadline:
            raise RuntimeError("The packages are never imported ahead.")
        time.sleep(0.1)


def measure() -> list[Figure]:
    say("packages: numpy and pandas, installed once")
    start = time.perf_counter()
    Sandbox.create(packages=PACKAGES, on_progress=say).destroy()
    built = time.perf_counter() - start
    Sandbox.create().destroy()
    _await_nursery()
    time.sleep(1)
    plain, frame = interleaved(25, 0.1, _first(PLAIN, []), _first(FRAME, PACKAGES))
    peer = "create -> first cell without packages"
    return [
        Figure("create(packages=[numpy, pandas]) -> first DataFrame", median(frame), "ms", peer, median(plain), 2.0),
        Figure("the same for the very first time: the installation", built, "s", "", None, None),
    ]
