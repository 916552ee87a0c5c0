"""The points of an apply at which it may be killed. Nothing happens at them, but in tests."""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def reached(name: str) -> None:
    if hook is not None:
        hook(name)
