"""Checks of an answer: by a command or code in a twin of the sandbox, or by a function of the user's."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import AgentError, Busy, InvalidInput
from ..policy.text import shown
from . import showing
from .ground import Ground

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox

Check = str | Mapping[str, str] | Callable[[str], Any]
_PASSED = "_atoll_passed"
_NOT_RUN = (126, 127)


def described(check: Check | None) -> dict[str, str] | None:
    """A check as a run's settings have it. A text is a command; a mapping has "command" or "code".

    Raises:
        InvalidInput: it is none.
    """
    if check is None:
        return None
    if isinstance(check, str):
        check = {"command": check}
    if isinstance(check, Mapping):
        if len(check) == 1 and next(iter(check)) in ("command", "code") and isinstance(next(iter(check.values())), str):
            if "code" in check:
                _judging(check["code"])
            return dict(check)
    elif callable(check):
        return {"function": getattr(check, "__name__", type(check).__name__)}
    raise InvalidInput(
        f"validate is {shown(check)}; give a command, {{'command': …}}, {{'code': …}}, or a function of the answer."
    )


async def judge(
    check: Mapping[str, str], function: Callable[[str], Any] | None, ground: Ground, answer: str, seconds: float
) -> str | None:
    """Why an answer does not count, or None.

    Raises:
        InvalidInput: a function is to judge, and this process was not given one.
    """
    if "function" in check:
        if function is None:
            raise InvalidInput(
                f"The answers of this run are judged by the function {check['function']}, which is not here.",
                hint="Give it as validate= to the agent that goes on with the run.",
            )
        return await _by_function(function, answer, seconds)
    try:
        twin = await ground.twin()
    except Busy as error:
        return f"The sandbox cannot be looked at as it is: {error} Close it, then answer again."
    try:
        if "command" in check:
            return await _by_command(twin, check["command"], answer, seconds)
        return await _by_code(twin, check["code"], answer, seconds)
    finally:
        import anyio

        with anyio.CancelScope(shield=True):
            await twin.destroy()


async def _by_function(function: Callable[[str], Any], answer: str, seconds: float) -> str | None:
    import anyio
    import anyio.to_thread

    try:
        with anyio.fail_after(seconds):
            # In a tuple, since no bare coroutine leaves a thread of trio's.
            (said,) = await anyio.to_thread.run_sync(lambda: (function(answer),), abandon_on_cancel=True)
            if hasattr(said, "__await__"):
                said = await said
        if isinstance(said, str):
            return said or "The check gave an empty text."
        return None if said is None or bool(said) else "The check said no."
    except Exception as error:  # noqa: BLE001  # a check that raises has failed, and says why
        return f"{type(error).__name__}: {error}"


async def _by_command(twin: AsyncSandbox, command: str, answer: str, seconds: float) -> str | None:
    done = await twin.run(command, stdin=answer.encode("utf-8", "replace"), timeout=seconds)
    if done.exit_code in _NOT_RUN and not done.timed_out:
        raise AgentError(
            f"The check {shown(command)} cannot be run in the sandbox (exit code {done.exit_code}): "
            f"{done.stderr.strip()[-300:]}",
            hint="Begin again with one that can.",
        )
    return None if done.success else showing.of_command(done, seconds).text


async def _by_code(twin: AsyncSandbox, code: str, answer: str, seconds: float) -> str | None:
    await twin.variables.set("answer", answer)
    execution = await twin.run_code(_judging(code), timeout=seconds)
    if execution.error is None and not execution.timed_out and not execution.state_lost:
        return None
    if execution.error is not None and execution.error.name == "AssertionError" and execution.error.value:
        return execution.error.value
    return showing.of_cell(execution).text


def _judging(code: str) -> str:
    """The code, which raises where the value of its last expression is false.

    Raises:
        InvalidInput: it is no Python.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"The code of the check is no Python: {error}.") from None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        value = tree.body[-1].value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
            return code  # what is printed is no judgement
        tree.body[-1:] = ast.parse(f"{_PASSED} = None").body
        tree.body[-1].value = value
        said = "'the last value of the check is ' + repr(" + _PASSED + ")"
        passed = f"{_PASSED} is None or (bool({_PASSED}) and not hasattr({_PASSED}, '__await__'))"
        tree.body += ast.parse(f"assert {passed}, {said}").body
        return ast.unparse(ast.fix_missing_locations(tree))
    return code
