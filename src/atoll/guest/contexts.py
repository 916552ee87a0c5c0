"""The operations on contexts: making and ending them, and having them do something."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import toolchains
from .arguments import Arguments
from .cellrun import Cell
from .channel import Channel, Operation
from .context import Context
from .contextstart import ContextSettings
from .lasting import Standing
from .loop import nothing
from .machine import Machine
from .refusal import BUSY, INVALID_INPUT, Refused, invalid
from .surroundings import checked_cwd, checked_env, checked_start

_MAX_CONTEXTS = 64
_NAME_LIMIT = 200
_MAIN = "main"


class Contexts:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._contexts: Dict[str, Context] = {}

    def prepare(self, name: str = _MAIN) -> None:
        """Make a context's process ahead of its first cell."""
        self._get(name, None).prepare()

    def standings(self) -> List[Standing]:
        return [Standing(each.settings, each.used, each.busy, *each.process) for each in self._contexts.values()]

    def revive(self, kept: List[ContextSettings]) -> None:
        """The contexts of an earlier life; their processes are made when they are needed."""
        for settings in kept[:_MAX_CONTEXTS]:
            if 0 < len(settings.name) <= _NAME_LIMIT:
                self._make(settings)

    def replace(self, kept: List[ContextSettings]) -> None:
        """Forget all contexts, with what they run, and have those of a checkpoint."""
        for context in self._contexts.values():
            context.restart(nothing, "the sandbox was rolled back")
        self._contexts = {}
        self.revive(kept)

    def all(self) -> List[Context]:
        return list(self._contexts.values())

    def dress(self) -> None:
        """Have those that have run nothing go on with another environment."""
        for context in self._contexts.values():
            context.dress()

    def discard_unused(self) -> None:
        """End prepared processes that have run nothing: they cost memory, and a first cell makes one anew."""
        for context in self._contexts.values():
            if not context.costly:
                context.discard_unused()

    def run(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        """A cell."""
        arguments = Arguments(request)
        wanted: Dict[str, Any] = {
            "code": arguments.text("code"),
            "env": checked_env(arguments.mapping("env")),
            "cwd": checked_cwd(self._machine, arguments.optional_text("cwd")),
            "input": request.get("input") is True,
            "tools": request.get("tools"),
            "limit": arguments.count("limit"),
        }
        turns = request.get("turns") is True
        cell = Cell(channel, wanted, arguments.seconds("timeout"), wanted["limit"], turns=turns)
        self._get(arguments.text("context", _MAIN), arguments.optional_text("language")).submit(cell)
        return cell

    def ask(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        """Anything else that a context does: `request` says what."""
        arguments = Arguments(request)
        wanted = request.get("request")
        if not isinstance(wanted, dict) or not isinstance(wanted.get("do"), str):
            raise invalid("A request to a context is an object with the member 'do'.")
        name = arguments.text("context", _MAIN)
        # Only what is written makes a context: who reads from one that is not there has mistyped its name.
        context = self._get(name, None) if name == _MAIN or wanted.get("act") == "set" else self._known(arguments)
        timeout, wait, turns = arguments.seconds("timeout"), arguments.seconds("wait"), request.get("turns") is True
        cell = Cell(channel, wanted, timeout, None, wait, turns=turns)
        context.submit(cell)
        return cell

    def interrupt(self, arguments: Arguments) -> Dict[str, Any]:
        context = self._contexts.get(arguments.text("context", _MAIN))
        return {"interrupted": context is not None and context.interrupt()}

    def list(self, _arguments: Arguments) -> Dict[str, Any]:
        return {"contexts": [context.describe() for context in self._contexts.values()]}

    def create(self, arguments: Arguments) -> Dict[str, Any]:
        """Make a context that does not exist yet; its process too, so that what is wrong is told now."""
        name = arguments.text("context")
        if name in self._contexts:
            raise invalid("There is already a context %r; delete or restart it, or choose another name." % name)
        context = self._prepared(
            ContextSettings(
                name,
                _canonical(arguments.text("language", "python")),
                checked_start(self._machine, arguments.optional_text("cwd")),
                checked_env(arguments.mapping("env")),
            )
        )
        return {"context": context.describe()}

    def restart(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        context = self._known(Arguments(request))
        context.restart(lambda: channel.end({}))
        return Operation(channel)

    def delete(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        context = self._known(Arguments(request))
        del self._contexts[context.settings.name]
        context.restart(lambda: channel.end({}), "the context was deleted")
        return Operation(channel)

    def _known(self, arguments: Arguments) -> Context:
        name = arguments.text("context", _MAIN)
        context = self._contexts.get(name)
        if context is None:
            known = ", ".join(sorted(self._contexts)) or "none"
            raise Refused(INVALID_INPUT, "There is no context %.200r; there are: %s." % (name, known))
        return context

    def _get(self, name: str, language: Optional[str]) -> Context:
        """A context, made if there is none; a `language` must be its own."""
        context = self._contexts.get(name)
        if context is None:
            return self._prepared(ContextSettings(name, _canonical(language or self._machine.config.language)))
        if language is not None and _canonical(language) != context.settings.language:
            raise invalid(
                "The context %r is for %s; create another one for %s." % (name, context.settings.language, language)
            )
        return context

    def _prepared(self, settings: ContextSettings) -> Context:
        """A new context with its process; none is left where that cannot be made."""
        context = self._make(settings)
        try:
            context.prepare()
        except BaseException:
            del self._contexts[settings.name]
            raise
        return context

    def _make(self, settings: ContextSettings) -> Context:
        if not settings.name or len(settings.name) > _NAME_LIMIT:
            raise invalid("The name of a context has 1 to %d characters." % _NAME_LIMIT)
        if len(self._contexts) >= _MAX_CONTEXTS:
            raise Refused(BUSY, "This sandbox already has %d contexts; delete some." % _MAX_CONTEXTS)
        context = self._contexts[settings.name] = Context(self._machine, settings)
        return context


def _canonical(language: str) -> str:
    """The name that a language is known by here; an unknown one stays as it is, and is refused when it is needed."""
    known = toolchains.find(language)
    return language if known is None else known.name
