"""A hundred sandboxes asked for at once, each with a first result, beside a hundred bare Pythons."""

from __future__ import annotations

import subprocess
import threading
import time

from atoll import Sandbox

from .measure import BARE, Figure, clean_environment, median, say

AT_ONCE = 100


def _sandboxes() -> float:
    made: list[Sandbox] = []
    failed: list[Exception] = []

    def one() -> None:
        try:
            sandbox = Sandbox.create()
            made.append(sandbox)
            if sandbox.run_code("6 * 7").text != "42":
                raise RuntimeError("a wrong result")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told below
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(AT_ONCE)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = time.perf_counter() - start
    for sandbox in made:
        sandbox.destroy()
    if failed:
        raise RuntimeError(f"{len(failed)} of {AT_ONCE} failed, one with {failed[0]!r}") from failed[0]
    return seen


def _pythons() -> float:
    start = time.perf_counter()
    running = [subprocess.Popen(BARE, env=clean_environment()) for _ in range(AT_ONCE)]
    for process in running:
        process.wait()
    return time.perf_counter() - start


def measure() -> list[Figure]:
    say(f"burst: {AT_ONCE} at once")
    Sandbox.create().destroy()
    ours, bare = [], []
    for _ in range(4):
        time.sleep(0.5)
        bare.append(_pythons())
        # Time enough for the lot to learn from the last rush.
        time.sleep(3.0)
        ours.append(_sandboxes())
    peer = f"{AT_ONCE} x python3 -c pass"
    floor = median(bare) * 1e3
    return [
        Figure(f"{AT_ONCE} at once, all with a result", median(ours[1:]) * 1e3, "ms", peer, floor, 1.0),
        Figure("the same, the first rush a zygote sees", ours[0] * 1e3, "ms", peer, floor, None),
    ]
