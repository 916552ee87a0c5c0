"""Directories that rules name as writable: they are made in a view when the source lacks them."""

from __future__ import annotations

from typing import Any

_WILD = frozenset("*?[\\")


def named_places(matcher: Any) -> list[str]:
    """The directories that write rules of a matcher spell out and that are themselves writable by all its rules.

    `/output/**` names `output`; a glob without a slash names no place, and neither does a single file.
    """
    found = dict.fromkeys(
        place for rule in getattr(matcher, "rules", ()) if rule.level == "write" if (place := _place(rule))
    )
    return [place for place in found if matcher.level(place, True) == "write"]


def _place(rule: Any) -> str:
    if rule.kind == "file" or (rule.kind == "glob" and "/" not in rule.pattern):
        return ""
    parts = [part for part in rule.pattern.split("/") if part not in ("", ".")]
    if rule.kind == "directory":
        return "/".join(parts)
    literal = []
    for part in parts:
        if _WILD & set(part):
            break
        literal.append(part)
    # `/a/b` without anything below it may be meant as a file.
    return "/".join(literal) if len(literal) < len(parts) or rule.pattern.endswith("/") else ""
