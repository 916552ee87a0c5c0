"""Agents: a model that works in a sandbox, and keeps what it did.

    from atoll.agent import Agent

    agent = Agent(model="openai/gpt-4o-mini")
    result = agent.completion("How many primes are there below a million?")
    print(result.response, result.usage, result.cost)

`AsyncAgent` is the same, awaited. Each name is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true
if TYPE_CHECKING:
    from .agent import AsyncAgent
    from .events import Event
    from .functions import tool
    from .results import Result, Status, Trajectory
    from .rows import Step
    from .sync import Agent

__all__ = ["Agent", "AsyncAgent", "Event", "Result", "Status", "Step", "Trajectory", "tool"]

_HOMES = {
    "Agent": "sync", "AsyncAgent": "agent", "Event": "events", "Result": "results", "Status": "results", "Step": "rows",
    "Trajectory": "results", "tool": "functions",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'atoll.agent' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
