"""Ready-made sets of path rules, by name.

What a preset hides has the priority `HIDING`: a rule of the usual priority, however specific, does not show it
again. `extend_preset(overrides=...)` does, since whoever writes that means it.
"""

from __future__ import annotations

import re

from ..errors import InvalidInput
from ..types import PathRule, Permissions
from .rules import check_rules
from .text import shown

HIDING = 100
DEFAULT = "agent-safe"
"""The rules for a source with which none are given."""

EVERYTHING = "full-access"
"""Everything is shown and may be changed, as without rules: a wall without rules has nothing to enforce then."""

_SECRETS = (".env*", "secrets/", "*.key", "*.pem", "credentials*")
_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"


def _hidden(*patterns: str) -> tuple[PathRule, ...]:
    return tuple(PathRule(pattern, "none", priority=HIDING) for pattern in patterns)


_BUILT_IN = {
    "agent-safe": (
        PathRule("**", "read"),
        PathRule("/output/**", "write"),
        PathRule("/tmp/**", "write"),  # noqa: S108 - a folder of the workspace
        *_hidden(".git", *_SECRETS),
    ),
    "development": (PathRule("**", "write"), *_hidden(*_SECRETS)),
    "read-only": (PathRule("**", "read"),),
    "full-access": (PathRule("**", "write"),),
    "view-only": (PathRule("**", "view"),),
}
_presets = {name: Permissions(rules, name) for name, rules in _BUILT_IN.items()}


def list_presets() -> tuple[str, ...]:
    """The names that `get_preset` knows: atoll's own first, then those that this process registered."""
    return tuple(_presets)


def get_preset(name: str) -> Permissions:
    """The rules of a preset.

    Raises:
        InvalidInput: no preset has that name.
    """
    wanted: object = name
    found = _presets.get(wanted) if isinstance(wanted, str) else None
    if found is None:
        raise InvalidInput(f"There is no preset {shown(name)}; the presets are {', '.join(_presets)}.")
    return found


def extend_preset(
    base: str | Permissions, additions: object = (), overrides: object = (), name: str | None = None
) -> Permissions:
    """A preset with rules of your own.

    `additions` come after the rules of `base` and are weighed with them as usual: they say more about what `base`
    shows, and do not show what it hides. `overrides` always win: their priorities are raised above all others, and
    stay in the same order among themselves. `name` is what the result calls itself; `register_preset` makes it known.

    Raises:
        InvalidInput: there is no such preset, or a rule is wrong.
    """
    start = base if isinstance(base, Permissions) else get_preset(base)
    weighed = (*check_rules(start.rules), *check_rules(additions))
    winners = check_rules(overrides)
    if winners:
        above = max([rule.priority for rule in weighed], default=0) + 1
        raised = max(0, above - min(rule.priority for rule in winners))
        winners = tuple(rule._replace(priority=rule.priority + raised) for rule in winners)
    return Permissions(check_rules((*weighed, *winners)), None if name is None else _check_name(name))


def register_preset(name: str, rules: object) -> Permissions:
    """Make rules known by a name, for as long as this process runs. Doing so twice with the same rules is fine.

    Raises:
        InvalidInput: a rule is wrong, or the name is, or it stands for other rules already.
    """
    preset = Permissions(check_rules(rules.rules if isinstance(rules, Permissions) else rules), _check_name(name))
    if not preset.rules:
        raise InvalidInput(f"The preset {shown(name)} has no rules, so it would hide everything; give it at least one.")
    if _presets.setdefault(name, preset) != preset:
        raise InvalidInput(f"There is a preset {shown(name)} already, with other rules; choose another name.")
    return preset


def _check_name(name: object) -> str:
    if not isinstance(name, str) or re.fullmatch(_NAME, name) is None:
        raise InvalidInput(f"A preset cannot be called {shown(name)}; use lower case letters, digits and . _ - inside.")
    return name
