"""What walls are measured beside: the same work by the program that the wall is made of, in the same run."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll import Sandbox

from . import docker
from .measure import Figure, interleaved, median, milliseconds, run_quietly

_ROUNDS = 7

Beside = Callable[[str, dict[str, float]], list[Figure]]


@contextmanager
def peers() -> Iterator[Beside]:
    """Figures of a wall against its peer; an engine that had to be started ends with the block."""
    with docker.engine() as client:

        def beside(name: str, seen: dict[str, float]) -> list[Figure]:
            if name == "wasm":
                cell = seen["create -> cell"]
                return [Figure("wasm: create -> first cell, after the first", cell, "ms", "", None, 15.0)]
            if name == "gvisor":
                from . import gvisor

                command, peer = seen["create -> command"], gvisor.bare(_ROUNDS)
                return [Figure("gvisor: create -> first command", command, "ms", "runsc run", peer, 1.3)]
            if name == "docker" and client is not None:
                return _containers(client)
            return []

        yield beside


def _containers(client: str) -> list[Figure]:
    """Docker, in turn with `docker run` of the very image that a sandbox has; and from a pool."""
    listed = subprocess.run(
        [client, "images", "-q", "atoll-default"], capture_output=True, text=True, check=True
    ).stdout.split()
    argv = [client, "run", "--rm", "--network", "none", listed[0], "true"]
    run_quietly(argv)

    def create() -> float:
        made: list[Sandbox] = []
        took = milliseconds(lambda: made.append(Sandbox.create("docker")))
        made[0].destroy()
        return took

    theirs, ours = interleaved(_ROUNDS, 0.1, lambda: milliseconds(lambda: run_quietly(argv)), create)
    os.environ["ATOLL_DOCKER_POOL"] = "2"
    try:
        create()
        pooled = []
        for _ in range(_ROUNDS):
            time.sleep(3)  # in which the pool is filled again
            pooled.append(create())
    finally:
        del os.environ["ATOLL_DOCKER_POOL"]
    return [
        Figure("docker: create", median(ours), "ms", "docker run … true", median(theirs), 1.2),
        Figure("docker: create from a pool", median(pooled), "ms", "", None, 30.0),
    ]
