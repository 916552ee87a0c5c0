"""Many contexts in one sandbox: what each adds to its memory."""

from __future__ import annotations

from atoll import Sandbox

from .measure import Figure, say
from .memory import keeper, pss, tree

COUNT = 50


def measure() -> list[Figure]:
    say(f"contexts: {COUNT} in one sandbox")
    with Sandbox.create() as sandbox:
        sandbox.run_code("1")
        before = sum(pss(pid) for pid in tree(keeper(sandbox)))
        for number in range(COUNT):
            sandbox.run_code(f"x = {number}", context=f"context-{number}")
            if sandbox.run_code("x", context=f"context-{number}").text != str(number):
                raise RuntimeError("a context has lost its variable")
        after = sum(pss(pid) for pid in tree(keeper(sandbox)))
    return [
        Figure(
            f"PSS that each of {COUNT} contexts adds, after two cells",
            (after - before) / COUNT / 1024,
            "MB",
            "",
            None,
            4.0,
        )
    ]
