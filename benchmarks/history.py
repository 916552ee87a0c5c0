"""Going back in time with 1 GB of files: taking a snapshot, rolling back to it, making a sandbox of it."""

from __future__ import annotations

import os
import time

from atoll import Sandbox, Snapshots

from .measure import Figure, median, milliseconds, say

SIZE = 1 << 30
ROUNDS = 9
FILL = "for i in $(seq 1 64); do head -c 16777216 /dev/zero | tr '\\0' x > big-$i; done"


def measure() -> list[Figure]:
    say("history: a sandbox with 1 GB of files")
    taken, back, again, names = [], [], [], []
    with Sandbox.create(resources={"disk": "4G", "memory": "2G"}) as sandbox:
        sandbox.run(FILL, check=True, timeout=300)
        sandbox.run_code("x = 1")
        for _ in range(ROUNDS):
            name = f"bench-{os.urandom(4).hex()}"
            names.append(name)
            taken.append(milliseconds(lambda name=name: sandbox.snapshot(name)))
            sandbox.run("echo more >> big-1; echo new > new", check=True)
            back.append(milliseconds(lambda name=name: sandbox.rollback(name)))
            assert not sandbox.files.exists("new")
            start = time.perf_counter()
            with Sandbox.create(snapshot=name, resources={"disk": "4G", "memory": "2G"}) as other:
                again.append((time.perf_counter() - start) * 1e3)
                assert other.files.info("big-64").size == SIZE // 64
            time.sleep(0.1)
    for name in names:
        Snapshots().delete(name)
    return [
        Figure("snapshot of a sandbox with 1 GB of files", median(taken), "ms", "", None, 30.0),
        Figure("rollback to it", median(back), "ms", "", None, 30.0),
        Figure("create(snapshot=) of it", median(again), "ms", "", None, 30.0),
    ]
