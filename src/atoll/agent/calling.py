"""The calls that a model makes: those in its sandbox one after the other, all others beside them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import AtollError, InvalidInput, ProtocolError, SandboxGone, SandboxNotFound, Unresponsive
from ..models import ToolCall
from . import prompts, showing
from .ground import CHANGING, Ground
from .limits import Ledger, LimitReached
from .recursion import Cell, Final, Recursion, as_text
from .sandboxtools import ended, sandbox_tools
from .steps import Outcome, Steps
from .together import together
from .toolspec import Outcome as Given, Tool, by_name, check_arguments

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox
    from ..types import Execution

UNKNOWN = (
    "It is not known whether this call had its effect: the program was interrupted while it ran. Find out before you "
    "call it again."
)
LONGEST_CELL = 600.0
_GRACE = 5.0
# What a sandbox may do to itself, or hostile code to it. It is not used any more then, whatever is left of it.
GONE = (SandboxGone, SandboxNotFound, Unresponsive, ProtocolError)


class Calling:
    """Makes the calls of one run.

    Args:
        outside: the tools that do not act in the sandbox.
        offered: the names of all that the model was told of when the run began, which may be more than there are now.
    """

    def __init__(
        self,
        steps: Steps,
        ledger: Ledger,
        ground: Ground,
        recursion: Recursion,
        outside: Sequence[Tool],
        offered: Sequence[str] = (),
    ) -> None:
        self._offered = frozenset(offered)
        self._steps = steps
        self._ledger = ledger
        self._ground = ground
        self._recursion = recursion
        self._seconds = ledger.limits.step_timeout
        inside = sandbox_tools(ground.open, self._cell, self._seconds)
        self._inside = {tool.name for tool in inside}
        self.tools = by_name([*inside, *outside])

    async def all(self, turn: int, calls: list[ToolCall]) -> list[Outcome]:
        """What came of the calls of one turn, in their order; of fewer, where the limit on calls is reached."""
        allowed = self._allowed(turn, calls)
        outcomes: list[Outcome] = [{} for _ in allowed]

        async def one(index: int) -> None:
            outcomes[index] = await self._call(f"m{turn}.t{index}", allowed[index])

        async def in_order(indices: list[int]) -> None:
            for index in indices:
                await one(index)

        inside = [index for index, call in enumerate(allowed) if call.name in self._inside]
        beside = [index for index, call in enumerate(allowed) if call.name not in self._inside]
        await together(
            [partial(in_order, some) for some in ([index] for index in beside)] + [partial(in_order, inside)]
        )
        return outcomes

    def check_complete(self, calls: Sequence[ToolCall], outcomes: list[Outcome]) -> None:
        """Raises LimitReached where some of the calls were not allowed, unless one of the others ended the work."""
        if len(outcomes) < len(calls) and not any(outcome.get("final") is not None for outcome in outcomes):
            most = self._ledger.limits.max_tool_calls
            raise LimitReached(
                "max_tool_calls", f"The model has made {most} tool calls, which are all that it may make."
            )

    async def variable(self, turn: int, name: str) -> Outcome:
        """The value of a variable, which a model has named as its answer."""

        async def act() -> tuple[Outcome, None]:
            given = await self._value(await self._ground.open(), name)
            return _outcome(given), None

        return await self._steps.do(f"m{turn}.f", "tool", "final_var", {"arguments": {"name": name}}, act)

    def _allowed(self, turn: int, calls: list[ToolCall]) -> list[ToolCall]:
        """Calls that were begun before the run was interrupted are counted already."""
        for index in range(len(calls)):
            if self._steps.known(f"m{turn}.t{index}") is None:
                try:
                    self._ledger.count_tool_call()
                except LimitReached:
                    return calls[:index]
        return calls

    async def _call(self, key: str, call: ToolCall) -> Outcome:
        tool, arguments, wrong = self._understood(call)

        async def act() -> tuple[Outcome, str | None]:
            in_doubt = self._steps.known(key) is not None
            if tool is None and in_doubt and call.name in self._offered:
                # It is there no more, and may have had its effect when it was.
                return {**_outcome(Given(UNKNOWN, failed=True)), "unknown": True}, None
            if tool is None or wrong is not None:
                return _outcome(Given(wrong or "", failed=True)), None
            if call.name in self._inside and not (in_doubt and call.name in CHANGING and not self._ground.reversible):
                return await self._in_sandbox(key, tool, arguments)
            if in_doubt and (call.name in self._inside or not tool.idempotent):
                return {**_outcome(Given(UNKNOWN, failed=True)), "unknown": True}, None
            return _outcome(await self._outside(tool, arguments)), None

        request = {"id": call.id, "arguments": arguments if wrong is None else call.arguments}
        return await self._steps.do(key, "tool", call.name, request, act)

    def _understood(self, call: ToolCall) -> tuple[Tool | None, dict[str, Any], str | None]:
        tool = self.tools.get(call.name)
        if tool is None:
            return None, {}, prompts.unknown_tool(call.name, self.tools)
        try:
            return tool, check_arguments(tool.parameters, call.arguments), None
        except InvalidInput as error:
            return tool, {}, str(error)

    async def _outside(self, tool: Tool, arguments: dict[str, Any]) -> Given:
        import anyio

        with anyio.move_on_after(self._seconds):
            return await tool.call(arguments)
        return Given(f"{tool.name} did not answer within {self._seconds:g} s. It may have had its effect.", failed=True)

    async def _in_sandbox(self, key: str, tool: Tool, arguments: dict[str, Any]) -> tuple[Outcome, str | None]:
        cell = self._recursion.cell = Cell(key)
        snapshot: str | None = None
        lost: dict[str, str] = {}
        try:
            given = await self._in_time(tool, arguments)
            if tool.name in CHANGING:
                snapshot, lost = await self._ground.mark(key)
        except GONE as error:
            given = Given(ended(error), failed=True)
            self._ground.lose(f"The sandbox ended: {error.message}")
        finally:
            self._recursion.cell = None
        outcome = {**_outcome(given), "ran": True}
        note = self._ground.take_note()
        if note is not None:
            outcome["text"] = f"[{note}]\n{outcome['text']}"
        if lost:
            outcome["lost"] = lost
        if cell.final is not None and not given.failed:
            outcome["final"] = cell.final.text
        return outcome, snapshot

    async def _in_time(self, tool: Tool, arguments: dict[str, Any]) -> Given:
        """A tool of the sandbox. A cell and a command have clocks of their own, which let them tell what they did."""
        import anyio

        await self._ground.open()  # to install packages may take minutes, and is no part of a step
        if tool.name in ("run_code", "run_command"):
            return await tool.call(arguments)
        with anyio.move_on_after(self._seconds):
            return await tool.call(arguments)
        return Given(f"{tool.name} was stopped: it ran out of time after {self._seconds:g} s.", failed=True)

    async def _cell(self, sandbox: AsyncSandbox, code: str) -> Given:
        """Run code. What its own time is does not count the waiting for models that it asks."""
        cell = self._recursion.cell
        assert cell is not None  # noqa: S101  # only `_in_sandbox` gets here
        late = False
        heard: list[str] = []
        execution: Execution | None = None
        import anyio

        async def watch(scope: anyio.CancelScope) -> None:
            nonlocal late
            began = time.monotonic()
            while (left := self._seconds - (time.monotonic() - began - cell.waited)) > 0:  # noqa: ASYNC110 - a clock
                await anyio.sleep(min(max(left, 0.01), 1.0 if left > 2 else 0.05))
            late = True
            with suppress(AtollError):  # then it is broken off below
                await sandbox.interrupt()
            await anyio.sleep(_GRACE)
            scope.cancel()

        failure: Exception | None = None
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(watch, scope)
                try:
                    execution = await sandbox.run_code(code, timeout=LONGEST_CELL, on_stdout=heard.append)
                except Exception as error:  # noqa: BLE001  # raised below, bare: the group would wrap it
                    failure = error
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if execution is None:
            stopped = f"[stopped: it ran out of time after {self._seconds:g} s, and did not let itself be interrupted]"
            return Given(f"{showing.clip(''.join(heard))}\n{stopped}".strip(), failed=True)
        given = showing.of_cell(execution, self._seconds if late else None)
        if cell.final is not None and cell.final.variable is not None and not given.failed:
            value = await self._value(sandbox, cell.final.variable)
            if value.failed:
                return value
            cell.final = Final(text=value.text)
        return given

    async def _value(self, sandbox: AsyncSandbox, name: str) -> Given:
        try:
            return Given(as_text(await sandbox.variables.get(name)))
        except AtollError as error:
            if isinstance(error, GONE):
                raise
            return Given(f"The variable {name!r} cannot be the answer: {error}", failed=True)
        except (TypeError, ValueError) as error:  # bytes, a table: nothing that can be said as text
            return Given(f"The variable {name!r} cannot be the answer: {error}. Make it a text.", failed=True)


def _outcome(given: Given) -> Outcome:
    outcome: Outcome = {"text": showing.clip(given.text), "failed": given.failed}
    if given.images:
        outcome["images"] = [list(image) for image in given.images]
    return outcome
