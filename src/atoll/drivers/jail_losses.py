"""What a twin does not have of its parent, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NAMED = 10


def lost(contexts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """From what `JailDriver.hold` tells: names of contexts, or of what is in them, with the reasons."""
    found: dict[str, str] = {}
    for context in contexts:
        name = str(context["name"])
        if not context.get("live"):
            if context.get("used", True):
                found[name] = str(context.get("reason") or "it cannot be forked")
            continue
        loses = context.get("loses") or {}
        if files := loses.get("files"):
            found[f"{name}/open files"] = f"they are closed in a twin: {_list(files)}"
        if threads := loses.get("threads"):
            found[f"{name}/threads"] = f"only the main thread goes on in a twin; {_count(threads)} did not"
        if children := loses.get("children"):
            found[f"{name}/child processes"] = f"they stay with their parent: {_list(children)}"
    return found


def _list(values: Any) -> str:
    if isinstance(values, int):
        return str(values)
    names = [str(each) for each in values]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _count(value: Any) -> str:
    return str(value if isinstance(value, int) else len(value))
