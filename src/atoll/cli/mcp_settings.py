"""From the options of `atoll mcp-serve` to the settings of its server."""

from __future__ import annotations

import os
from typing import Any

from ..mcp.settings import Settings
from ..policy.presets import DEFAULT
from .parsing import UsageError
from .values import duration, whole_number

_LONGEST_SPACE = 200


def settings_of(args: Any) -> Settings:
    """Raises UsageError, InvalidInput."""
    most = whole_number(args.max_output, "--max-output")
    if most < 100:
        raise UsageError(f"--max-output is {most}; give at least 100.")
    sessions = whole_number(args.max_sessions, "--max-sessions")
    if sessions < 1:
        raise UsageError("--max-sessions is 0; give at least 1.")
    if args.preset is not None and not args.allow_source:
        raise UsageError("--preset is for sessions over a directory; allow one with --allow-source DIR.")
    return Settings(
        driver=args.driver,
        wishes=_wishes(args),
        lifetime=duration(args.lifetime, "--lifetime"),
        space=_space(args.space),
        sources=tuple(_source(path, apply=args.allow_apply) for path in args.allow_source),
        preset=_preset(args.preset),
        apply=args.allow_apply,
        install=not args.no_install,
        max_output=most,
        max_sessions=sessions,
        echo=args.with_echo,
    )


def _wishes(args: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"network": args.network, "image": args.image}
    resources = {name: getattr(args, name) for name in ("memory", "cpu", "pids", "disk")}
    given = {name: value for name, value in resources.items() if value is not None}
    if given or args.packages:
        from .options import _resources, packages_of

        found["resources"] = _resources(args)
        found["packages"] = packages_of(args.packages)
    wishes = {name: value for name, value in found.items() if value not in (None, {}, ())}
    if wishes:
        # A wrong value is told now, and not to a model later.
        from ..policy.spec import make_spec

        make_spec(**wishes)
    return wishes


def _preset(given: str | None) -> str:
    if given is None:
        return DEFAULT
    from ..policy.spec import make_spec

    make_spec(preset=given, source=os.getcwd())
    return given


def _space(given: str | None) -> str:
    """The label that sessions carry."""
    space = _here() if given is None else given
    if given is not None and not (0 < len(given) <= _LONGEST_SPACE and given.isprintable()):
        raise UsageError(f"--space is {given!r}; give 1 to {_LONGEST_SPACE} printable characters.")
    if len(space) > _LONGEST_SPACE or not space.isprintable():
        from hashlib import sha256

        return "sha256:" + sha256(os.fsencode(space)).hexdigest()
    return space


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("The directory that this was started in is gone; give --space NAME.") from None


def _source(path: str, *, apply: bool) -> str:
    if not os.path.isdir(path):
        raise UsageError(f"--allow-source is {path!r}, which is no directory.")
    real = os.path.realpath(path)
    home = os.path.realpath(os.path.expanduser("~"))
    if apply and os.path.commonpath([real, home]) == real:
        raise UsageError(
            f"--allow-source is {path!r}, which holds your home directory: every program reads files there, so a "
            "session that may apply could have any of them run its code. Allow a directory below it."
        )
    return real
