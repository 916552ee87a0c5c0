"""AsyncContexts: the contexts of a sandbox, each a process that keeps its state between cells."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput
from ..policy.text import kind_of, shown
from ..types import ContextInfo
from . import answers
from .command import add_surroundings
from .links import Links

MAIN = "main"


class AsyncContexts:
    """Each context has variables, a directory and processes of its own; cells of different ones run at once.

    A cell that names a context which is not there makes it, so `create` is for those with a language, a
    directory or an environment of their own. Where a context is asked for, its name or its `ContextInfo` will do.
    """

    def __init__(self, links: Links) -> None:
        self._links = links

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._links.sandbox}>"

    async def create(
        self,
        name: str | None = None,
        *,
        language: str = "python",
        workdir: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ContextInfo:
        """Make a context; without a name it gets one that is free.

        Args:
            language: "python", "bash", "javascript" and so on; "jupyter:NAME" for a Jupyter kernel that is
                installed inside the sandbox.
            workdir: where its process starts.
            env: variables on top of the sandbox's.

        Raises:
            InvalidInput: there is one of that name.
            Unsupported: the sandbox does not have the language; the message says how to get it.
        """
        request: dict[str, Any] = {"language": context_text(language, "language")}
        add_surroundings(request, env, workdir)
        request["context"] = f"context-{os.urandom(4).hex()}" if name is None else context_name(name)
        answer = await self._links.ask("create_context", **request)
        return _info(answers.mapping(answer, "context"))

    async def list(self) -> builtins.list[ContextInfo]:
        answer = await self._links.ask("contexts")
        return [_info(item) for item in answers.items(answer, "contexts")]

    async def restart(self, context: str | ContextInfo = MAIN) -> None:
        """End all that runs in it; its next cell starts afresh, with the language, directory and environment it had.

        Raises:
            InvalidInput: there is no such context.
        """
        await self._links.ask("restart_context", context=context_name(context))

    async def interrupt(self, context: str | ContextInfo = MAIN) -> bool:
        """Interrupt the cell that runs in it, as Ctrl-C does; whether there was one."""
        return answers.flag(await self._links.ask("interrupt", context=context_name(context)), "interrupted")

    async def delete(self, context: str | ContextInfo) -> None:
        """End it, with all that runs in it. Raises as `restart` does."""
        await self._links.ask("delete_context", context=context_name(context))


def context_name(context: object) -> str:
    """Raises InvalidInput."""
    return context.name if isinstance(context, ContextInfo) else context_text(context, "context")


def context_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} is {kind_of(value)}; give text.")
    if not value:
        raise InvalidInput(f"{what} is {shown(value)}; give a name.")
    return value


def _info(answer: answers.Answer) -> ContextInfo:
    return ContextInfo(
        name=answers.text(answer, "name"),
        language=answers.text(answer, "language"),
        workdir=answers.text(answer, "cwd"),
        pid=None if answer.get("pid") is None else answers.integer(answer, "pid"),
        busy=answers.flag(answer, "busy"),
        cells=answers.integer(answer, "count"),
    )
