"""`atoll policy`: what rules would do to a directory, before anything runs."""

from __future__ import annotations

import os
from argparse import Namespace

from ..errors import InvalidInput
from ..policy.presets import DEFAULT, get_preset, list_presets
from ..policy.rules import Matcher
from ..types import PathRule, Permissions
from .output import colourful, complain, paint, say
from .parsing import Parser, UsageError
from .permitting import add_permission_options, permissions_of

_DESCRIPTION = """\
See what rules would do to a directory. Nothing is started and nothing is
changed.

  check DIR          the tree, with the level of each path
  explain DIR PATH   which rule decides about one path, and why that one
  presets            the rules that come with atoll
"""

_EPILOG = """\
Without other rules it is the preset agent-safe.

levels:
  write    all is allowed
  read     it can be read
  view     its name, size and time can be seen, not its content
  none     it is not there

examples:
  atoll policy check .
  atoll policy check . --allow 'read:src/**' --hide '**/.env*' --depth 2
  atoll policy check . --rules policy.toml --json
  atoll policy explain . src/.env
"""


def main(words: list[str]) -> int:
    parser = Parser("policy", "check DIR | explain DIR PATH | presets [OPTIONS]", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("action", metavar="ACTION", help="check, explain or presets")
    add("operands", nargs="*", metavar="DIR [PATH]", help="the directory; a path in it, from there on")
    add_permission_options(parser, "the rules")
    add("--depth", metavar="COUNT", help="draw the tree no deeper")
    add("--json", action="store_true", help="everything, as a JSON object")
    args = parser.parse_intermixed_args(words)
    actions = {"check": (_check, 1), "explain": (_explain, 2), "presets": (_presets, 0)}
    action, count = actions.get(args.action, (None, 0))
    if action is None or len(args.operands) != count:
        raise UsageError("Say `atoll policy check DIR`, `atoll policy explain DIR PATH` or `atoll policy presets`.")
    action(args)
    return 0


def _rules(args: Namespace) -> Permissions:
    return permissions_of(args) or get_preset(DEFAULT)


def _check(args: Namespace) -> None:
    from ..policy.ignores import Ignores
    from .policytree import COLOURS, counted, drawn, readable, survey, unused
    from .values import whole_number

    depth = None if args.depth is None else whole_number(args.depth, "--depth")
    top, permissions = _directory(args.operands[0]), _rules(args)
    matcher = Matcher(permissions.rules)
    found = survey(top, matcher, Ignores(args.ignore))
    warnings = list(unused(_own(permissions, args), matcher, found))
    counts = found.counts()
    if args.json:
        paths = [
            {"path": entry.path, "kind": entry.kind, "ignored": entry.ignored,
             "level": "none" if entry.ignored else found.levels[entry.path],
             "rule": None if entry.ignored else _as_json(matcher.winner(entry.path))}
            for entry in found.entries
        ]  # fmt: skip
        _say_json({"directory": top, "preset": permissions.name, "rules": [*map(_as_json, permissions.rules)],
                   "ignore": args.ignore, "paths": paths, "counts": counts, "warnings": warnings})  # fmt: skip
        return
    colours = colourful()
    say("\n".join(drawn(found, paint(readable(top), "bold", wanted=colours), depth, colours=colours)))
    total = sum(counts.values()) - counts["ignored"]
    parts = [paint(f"{count} {word}", COLOURS[word], wanted=colours and count > 0) for word, count in counts.items()]
    say(f"\n{counted(total)} by {permissions.name or 'these rules'}: {', '.join(parts)}")
    for sentence in warnings:
        complain(sentence)


def _own(permissions: Permissions, args: Namespace) -> list[PathRule]:
    """The rules that the user wrote. What a preset is about need not be there, and is no reason to warn."""
    if args.rules is not None:
        presets = list_presets()
    elif args.preset is not None or not args.allow:
        presets = (args.preset or DEFAULT,)
    else:
        presets = ()
    known = {rule for name in presets for rule in get_preset(name).rules}
    return [rule for rule in permissions.rules if rule not in known]


def _explain(args: Namespace) -> None:
    from ..policy.ignores import Ignores
    from .policytree import readable, survey

    top, permissions = _directory(args.operands[0]), _rules(args)
    path = _inside(args.operands[1])
    matcher = Matcher(permissions.rules)
    explanation = matcher.explain(path)
    found = survey(top, matcher, Ignores(args.ignore))
    there = next((entry for entry in found.entries if entry.path == path), None)
    ignored = Ignores(args.ignore).ignored(path, directory=there is not None and there.directory)
    level = "none" if ignored else found.levels.get(path, explanation.level)
    why = explanation.why
    if ignored:
        why = "It is ignored, so the sandbox never gets it."
    elif level != explanation.level:
        why += " Something below it is visible, so that its name is, too."
    if args.json:
        _say_json({"path": path, "level": level, "ignored": ignored, "rule": _as_json(explanation.rule), "why": why})
        return
    say(f"{paint(readable(path) or '/', 'bold', wanted=colourful())}: {_painted(level)}")
    say(why)


def _presets(args: Namespace) -> None:
    if args.json:
        _say_json({name: [*map(_as_json, get_preset(name).rules)] for name in list_presets()})
        return
    for name in list_presets():
        say(paint(name, "bold", wanted=colourful()))
        for rule in get_preset(name).rules:
            say(f"  {_painted(rule.level, 6)} {rule.pattern}")


def _painted(level: str, width: int = 0) -> str:
    from .policytree import COLOURS

    return paint(level.ljust(width), COLOURS[level], wanted=colourful())


def _directory(path: str) -> str:
    if not os.path.isdir(path):
        raise InvalidInput(f"{path!r} is not a directory; give the one that a sandbox would start with.")
    return os.path.abspath(path)


def _inside(path: str) -> str:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise InvalidInput(f"{path!r} climbs with '..'; write it from the directory on.")
    return "/".join(names)


def _as_json(rule: PathRule | None) -> dict[str, object] | None:
    return None if rule is None else rule._asdict()


def _say_json(value: object) -> None:
    """Only ASCII: names may hold what a terminal obeys, or bytes that are no UTF-8."""
    import json

    say(json.dumps(value, indent=2))
