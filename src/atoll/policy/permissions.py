"""Permissions from whatever a caller has: the name of a preset, rules, JSON, TOML, or the flags of a command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InvalidInput
from ..types import PathRule, Permissions
from .presets import DEFAULT, EVERYTHING, HIDING, extend_preset, get_preset
from .rules import LEVELS, check_rules
from .text import shown

_TABLE = ("preset", "rules")


def check_permissions(value: object) -> Permissions | None:
    """Permissions from a preset's name, from `Permissions`, or from rules. None stays None: there are no rules then.

    Raises:
        InvalidInput: it is none of these, a rule is wrong, or there is not a single rule, which would hide everything.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return get_preset(value)
    if isinstance(value, Permissions):
        return Permissions(_some(check_rules(value.rules)), _check_name(value.name))
    if isinstance(value, Mapping | PathRule) or not isinstance(value, Iterable):
        raise InvalidInput(f"permissions is {shown(value)}; give a preset such as 'agent-safe', or a list of rules.")
    return Permissions(_some(check_rules(value)))


def chosen(preset: object, permissions: object, *, default: bool = True) -> Permissions | None:
    """The rules that the keywords `preset` and `permissions` ask for; None where everything may be written.

    Rules beside a preset are additions to it, as `extend_preset` has them. Without either it is the preset `DEFAULT`,
    or with `default=False` also None: nothing was chosen.

    Raises:
        InvalidInput: as `check_permissions`, or there are two presets.
    """
    if preset is None and permissions is None:
        return get_preset(DEFAULT) if default else None
    if preset is None or permissions is None:
        found = check_permissions(permissions if preset is None else preset)
        # A snapshot's rules would hold where nothing was chosen.
        return None if default and grants_everything(found) else found
    if isinstance(permissions, str):
        raise InvalidInput(
            f"preset={shown(preset)} and permissions={shown(permissions)} both name a preset; give one, and as "
            "permissions= a list of rules to add to it."
        )
    base, more = check_permissions(preset), check_permissions(permissions)
    return None if base is None or more is None else extend_preset(base, more.rules)


def grants_everything(permissions: Permissions | None) -> bool:
    """Whether these are no rules, or the preset that is as good as none."""
    return permissions is None or permissions == get_preset(EVERYTHING)


def to_json(permissions: Permissions) -> dict[str, Any]:
    """An object that `json.dumps` takes."""
    return {"name": permissions.name, "rules": [rule._asdict() for rule in permissions.rules]}


def from_json(value: object) -> Permissions:
    """What `to_json` wrote, checked again. The rules count, not what a preset of that name has by now.

    Raises:
        InvalidInput: it is nothing that this version wrote.
    """
    if not isinstance(value, Mapping) or set(value) != {"name", "rules"}:
        raise InvalidInput(f"Stored permissions are {shown(value)} and not an object with a name and rules.")
    return Permissions(_some(check_rules(value["rules"])), _check_name(value["name"]))


def from_toml(document: Mapping[str, Any]) -> Permissions:
    """Permissions from a parsed TOML document with such a table; other tables are not looked at.

        [permissions]
        preset = "agent-safe"

        [[permissions.rules]]
        pattern = "src/**"
        level = "write"

    The preset may be left out, or the rules. Rules beside a preset are additions to it, as `extend_preset` has them.

    Raises:
        InvalidInput: there is no such table, or something in it is wrong.
    """
    table = document.get("permissions")
    if not isinstance(table, Mapping):
        raise InvalidInput("There is no table [permissions]; write one with preset = ... or [[permissions.rules]].")
    unknown = [key for key in table if key not in _TABLE]
    if unknown:
        raise InvalidInput(f"[permissions] has no {shown(unknown[0])}; the names are {', '.join(_TABLE)}.")
    rules = check_rules(table.get("rules", ()))
    if "preset" not in table:
        return Permissions(_some(rules))
    return extend_preset(table["preset"], rules) if rules else get_preset(table["preset"])


def from_flags(
    allow: Iterable[str] = (),
    hide: Iterable[str] = (),
    preset: str | None = None,
    base: Permissions | None = None,
) -> Permissions | None:
    """Permissions from a command line; None when nothing was asked for.

    They start with `preset`, or with `base` from a file. `allow` holds texts such as "read:src/**", `hide` patterns:
    these win over whatever is allowed, as what a preset hides does. With `hide` alone, it starts with the preset
    `DEFAULT`; with `allow` alone, all the rest is hidden.

    Raises:
        InvalidInput: a text is wrong, or there are both a preset and a base.
    """
    if preset is not None and base is not None:
        raise InvalidInput("Give a preset or a file with rules, not both; the file may name the preset.")
    start = get_preset(preset) if preset is not None else base
    allowed = [_allowed(text) for text in allow]
    hidden = [PathRule(pattern, "none", priority=HIDING) for pattern in hide]
    if not allowed and not hidden:
        return start
    if start is None:
        start = Permissions(() if allowed else get_preset(DEFAULT).rules)
    return extend_preset(start, [*allowed, *hidden])


def _allowed(text: str) -> PathRule:
    level, colon, pattern = text.partition(":")
    if not colon or level not in LEVELS:
        raise InvalidInput(f"{shown(text)} does not begin with a level; write it as read:src/**, with one of "
                           f"{', '.join(LEVELS)}.")  # fmt: skip
    if not pattern:
        raise InvalidInput(f"{shown(text)} has no pattern behind the colon; write it as {level}:src/**.")
    return PathRule(pattern, level)


def _some(rules: tuple[PathRule, ...]) -> tuple[PathRule, ...]:
    if not rules:
        raise InvalidInput("There are no rules, so everything would be hidden; give at least one, or no permissions.")
    return rules


def _check_name(name: object) -> str | None:
    if name is not None and not (isinstance(name, str) and name.isprintable() and len(name) < 64):
        raise InvalidInput(f"The permissions are called {shown(name)}; a name is a short text, or None.")
    return name
