"""AsyncVariables: the variables of a sandbox's Python contexts, read and written without running code."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput, ProtocolError
from ..policy.sizes import parse_size
from ..policy.text import kind_of, shown
from ..types import Variable
from ..wire.values import MAX_SIZE
from . import answers, values
from .links import Links

_MAX_LISTING = 16 << 20


class AsyncVariables:
    """Variables of a context: "main" unless another is named.

    A value that passes is None, a bool, int, float, text, list or dict with text keys, bytes, a numpy array, or
    a table of pandas, polars or pyarrow. Tuples come as lists. Nothing is pickled, in either direction, and
    nothing that a guest sends is believed.

    Every method waits for a cell that runs in the context, and may raise as every method of a sandbox does.
    """

    def __init__(self, links: Links, memory: int) -> None:
        self._links = links
        self._memory = memory

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._links.sandbox}>"

    async def get(self, name: str, context: str = "main", *, max_size: int | str = MAX_SIZE) -> Any:
        """The value of a variable.

        Args:
            max_size: how many bytes it may take on the way.

        Raises:
            VariableMissing: there is no such variable; it is a KeyError, too.
            InvalidInput: its value does not pass; the message says what does.
            Unsupported: a library is missing, inside or outside; the message says which and how to get it.
        """
        limit = parse_size(max_size, "max_size")
        answer, data = await self._ask(context, {"act": "get", "name": _name(name), "limit": limit}, limit=limit)
        return values.unpack(answer, data)

    async def set(self, name: str, value: Any, context: str = "main") -> None:
        """Give a variable a value. Raises as `get` does."""
        packed = values.pack(value, _name(name))
        view = memoryview(packed.data).cast("B") if memoryview(packed.data).nbytes else memoryview(b"")
        if len(view) > self._memory:
            raise InvalidInput(
                f"{name} takes {len(view)} bytes, and the sandbox has {self._memory} bytes of memory; make it with "
                "resources= that have more, or write a file."
            )
        await self._ask(context, {"act": "set", "name": name, "value": packed.form, "size": len(view)}, view)

    async def update(self, values: Mapping[str, Any], context: str = "main") -> None:
        """Give several variables values, one after the other. Raises as `get` does, with those before it set."""
        if not isinstance(values, Mapping):
            raise InvalidInput(f"values is {shown(values)}; give a mapping of names to values.")
        for name, value in values.items():
            await self.set(name, value, context)

    async def list(self, context: str = "main") -> builtins.list[Variable]:
        """The variables in the order of their making, without modules and names that begin with an underscore.

        Raises:
            InvalidInput: there are more than 10,000.
        """
        answer, data = await self._ask(context, {"act": "list"}, limit=_MAX_LISTING)
        if answers.integer(answer, "left_out"):
            raise InvalidInput("The context has more than 10,000 variables; run code to look at them.")
        return [_variable(item) for item in _items(data)]

    async def clear(self, *names: str, context: str = "main") -> None:
        """Forget variables; without a name, all that `list` shows.

        Raises:
            VariableMissing: there is no such variable; all are still there.
        """
        request: dict[str, Any] = {"act": "clear"}
        if names:
            request["names"] = [_name(name) for name in names]
        await self._ask(context, request)

    async def _ask(
        self, context: str, request: dict[str, Any], payload: memoryview | None = None, limit: int = 0
    ) -> tuple[answers.Answer, bytearray]:
        if not isinstance(context, str):
            raise InvalidInput(f"context is {kind_of(context)}; give the name of a context.")
        from . import contextqueue

        return await contextqueue.ask(self._links, context, {"do": "variables", **request}, payload, limit)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"The name of a variable is {shown(name)}; give a text.")
    return name


def _items(data: bytearray) -> builtins.list[answers.Answer]:
    try:
        listed = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError("The guest's list of variables is no JSON.") from None
    return answers.items({"variables": listed}, "variables")


def _variable(item: answers.Answer) -> Variable:
    size = answers.integer(item, "size")
    if size < 0:
        raise ProtocolError(f"The guest has a variable of {size} bytes.")
    return Variable(answers.text(item, "name"), answers.text(item, "type"), size, answers.text(item, "text"))
