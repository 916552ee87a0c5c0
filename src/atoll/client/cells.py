"""Cells of Python code, run in a context that keeps its variables."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from ..errors import ProtocolError
from ..types import Execution, Result
from ..wire.frames import DATA, EVENT
from . import answers
from .links import Links
from .running import GRACE, Audience, Callback, Gathered, tell

ResultCallback = Callable[[Result], Any]


class _Results:
    """Displayed values, bounded like output is."""

    def __init__(self, limit: int, on_result: ResultCallback | None) -> None:
        self._room = limit
        self._on_result = on_result
        self.kept: list[Result] = []
        self.cut = False

    async def take(self, answer: answers.Answer, size: int) -> None:
        result = answers.result(answer)
        self._room -= size
        if self._room < 0:
            self.cut = True
            return
        self.kept.append(result)
        if self._on_result:
            await tell(self._on_result, result)


async def run_code(
    links: Links,
    request: dict[str, Any],
    *,
    on_stdout: Callback | None,
    on_stderr: Callback | None,
    on_result: ResultCallback | None,
) -> Execution:
    """Run a cell to its end. `request` has `timeout` and `limit`."""
    timeout, limit = request["timeout"], request["limit"]
    deadline = None if timeout is None else monotonic() + timeout + GRACE
    gathered, results = Gathered(limit), _Results(limit, on_result)
    audience = Audience(on_stdout, on_stderr)
    async with await links.open(request, quiet=None, deadline=deadline) as operation:
        while (frame := await operation.next()).kind in (DATA, EVENT):
            if frame.kind == DATA:
                gathered.take(frame)
                await audience.hear(frame)
            else:
                await results.take(operation.json(frame), len(frame.payload))
        answer = operation.answer(frame)
    await audience.finish()
    return _execution(answer, gathered, results)


def _execution(answer: answers.Answer, gathered: Gathered, results: _Results) -> Execution:
    count = answers.integer(answer, "count")
    if count < 0:
        raise ProtocolError(f"The guest counts {count} cells.")
    return Execution(
        results=tuple(results.kept),
        stdout=gathered.stdout(),
        stderr=gathered.stderr(),
        error=answers.code_error(answer),
        count=count,
        duration=answers.number(answer, "duration"),
        timed_out=answers.flag(answer, "timed_out"),
        truncated=answers.flag(answer, "truncated") or gathered.cut or results.cut,
        state_lost=answers.flag(answer, "state_lost"),
    )
