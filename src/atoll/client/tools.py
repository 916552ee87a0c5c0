"""Functions of the host that code in a sandbox may call, by name and with JSON arguments. Nothing else is reachable."""

from __future__ import annotations

import json
import keyword
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InvalidInput
from ..io import IO
from ..policy.limits import check_timeout
from ..policy.sizes import parse_size
from ..policy.text import shown
from .running import is_coroutine_function

Function = Callable[..., Any]

MAX_ANSWER = 1 << 19
_RESERVED = frozenset(("tools", "input", "display"))


class Tools:
    """What a cell may call, with limits on it.

    Args:
        functions: by the name that code inside calls them. They get JSON values and give JSON values; in an
            `AsyncSandbox` they may be coroutine functions.
        timeout: seconds for one call; the code inside is told when they are over, and goes on. A plain function
            cannot be stopped, so its thread goes on, too, and what it gives is dropped.
        max_calls: how many calls one cell may make.
        max_size: bytes that one answer may take as JSON.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        *,
        timeout: float | None = 30.0,
        max_calls: int = 1000,
        max_size: int | str = MAX_ANSWER,
    ) -> None:
        if not isinstance(functions, Mapping):
            raise InvalidInput(f"tools is {shown(functions)}; give a mapping of names to functions.")
        for name, function in functions.items():
            _check(name, function)
        if type(max_calls) is not int or max_calls < 1:
            raise InvalidInput(f"max_calls is {shown(max_calls)}; give how many calls a cell may make, 1 or more.")
        self.functions = dict(functions)
        self.timeout = check_timeout(timeout)
        self.max_calls = max_calls
        self.max_size = parse_size(max_size, "max_size")
        if self.max_size > MAX_ANSWER:
            raise InvalidInput(f"max_size is {shown(max_size)}; at most {MAX_ANSWER} bytes pass. Write a file instead.")

    @classmethod
    def of(cls, tools: Tools | Mapping[str, Function], *, awaited: bool) -> Tools:
        """What the keyword `tools` was given. Raises InvalidInput for coroutine functions where nobody awaits them."""
        made = tools if isinstance(tools, Tools) else cls(tools)
        for name, function in made.functions.items():
            if not awaited and is_coroutine_function(function):
                raise InvalidInput(f"The tool {name!r} is a coroutine function; give a plain one, or use AsyncSandbox.")
        return made


class Answering:
    """Answers what code of one cell asks. Whatever it asks, the answer is a JSON object."""

    def __init__(self, io: IO, tools: Tools | None, on_input: Callable[[str], Any] | None) -> None:
        self._io = io
        self._tools = tools
        self._on_input = on_input
        self._calls = 0

    def describe(self, request: dict[str, Any]) -> None:
        """Tell the context what may be asked."""
        if self._on_input is not None:
            request["input"] = True
        if self._tools is not None:
            request["tools"] = list(self._tools.functions)

    async def answer(self, question: object, left: float | None = None) -> dict[str, Any]:
        """No tool is waited for when no time is `left`. Raises what the caller's own `on_input` raises."""
        if not isinstance(question, dict):
            return _refusal("The question is no JSON object.")
        if self._on_input is not None and isinstance(question.get("input"), str):
            text = self._on_input(question["input"])
            if hasattr(text, "__await__"):
                text = await text
            if text is None:
                return _refusal("Nothing was entered.")
            size = len(json.dumps(str(text)))
            if size > MAX_ANSWER:
                return _refusal(f"What was entered takes {size} bytes as JSON; at most {MAX_ANSWER} pass.")
            return {"value": str(text)}
        if self._tools is not None and "tool" in question:
            return await self._call(self._tools, question, left)
        return _refusal("The host answers no such question.")

    async def _call(self, tools: Tools, question: dict[str, Any], left: float | None) -> dict[str, Any]:
        name, arguments, keywords = (question.get(part) for part in ("tool", "arguments", "keywords"))
        function = tools.functions.get(name) if isinstance(name, str) else None
        if function is None or not isinstance(arguments, list) or not isinstance(keywords, dict):
            return _refusal(f"The host offers no such tool {shown(name)}; it offers {', '.join(tools.functions)}.")
        self._calls += 1
        if self._calls > tools.max_calls:
            return _refusal(f"This cell has made {tools.max_calls} calls, which is all that it may make.")
        timeout = min((limit for limit in (tools.timeout, left) if limit is not None), default=None)
        return await self._attempt(tools, name, lambda: function(*arguments, **keywords), timeout)

    async def _attempt(
        self, tools: Tools, name: object, call: Callable[[], Any], timeout: float | None
    ) -> dict[str, Any]:
        try:
            value = await self._io.call(call, timeout)
            encoded = json.dumps(value)
        except TimeoutError:
            return _refusal(f"The host's {name} did not answer within {timeout:g} s.")
        except Exception as error:  # noqa: BLE001  # what a tool raises is its answer
            return _refusal(f"The host's {name} failed: {type(error).__name__}: {_said(error)}"[:10_000])
        if len(encoded) > tools.max_size:
            return _refusal(f"The answer of the host's {name} takes {len(encoded)} bytes; {tools.max_size} may pass.")
        return {"value": value}


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # it cannot even be shown
        return "it cannot be shown"


def _refusal(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def _check(name: object, function: object) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidInput(f"tools has {shown(name)}, which code cannot call; name a tool as you name a function.")
    if name.startswith("__"):
        raise InvalidInput(f"tools has {name!r}; names with two leading underscores are Python's own. Choose another.")
    if name in _RESERVED:
        raise InvalidInput(f"tools has {name!r}, which means something else inside; choose another name.")
    if not callable(function):
        raise InvalidInput(f"The tool {name!r} is {shown(function)}, which cannot be called.")
