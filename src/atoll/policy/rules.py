"""Which level a path of the workspace has, from the rules that were given.

Paths are relative to the workspace, with "/" between names, "" for the workspace itself. Bytes that are no UTF-8 are
lone surrogates. The level follows from the path alone, never from what is there: that may change between the
judgement and the act.

What a rule matches:

- kind "file": exactly this path. Kind "directory": this path and everything below. Both are written from the
  workspace's root, with a leading slash or without; wildcards mean nothing in them.
- kind "glob": as `globs.py` says, `*`, `?`, `[a-z]`, and `**` for any number of names, also none. With a slash at its
  beginning or inside, it is written from the workspace's root; without one it matches a name at any depth.
- A glob also holds for everything below what it matches: `src`, `src/` and `src/**` are the same but for `src/**`
  counting as less specific, and `.env*` holds for all in `.env.d`. There is one exception: a glob that ends in `/*`
  names the entries of a directory and not what is below them.
- Level "none" has no exception: a rule that hides a path hides everything below, whatever its kind.
- `*`, `**`, `/` and `.` match everything, the workspace itself too.

Which rule wins where several match: the higher priority; then kind file before directory before glob; then fewer
wildcards (each `*`, `**`, `?` and `[...]` is one, but a leading `**/` is none, since `**/x` is another way to write
`x`); then more characters that stand for themselves, slashes not counted; then the rule that was given later. A
pattern in which no character stands for itself, such as `**`, comes after all others of its kind and priority. Where
no rule matches, the level is "none".

So an exact name beats a wildcard wherever both match: `src` comes before `src/*.key`, as `.git` comes before `*.md`.
Whoever means the opposite gives a priority; presets and the command line do so for what they hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, get_args

from ..errors import InvalidInput
from ..types import Explanation, Level, PathRule, RuleKind
from .globs import ANY, Glob, check_pattern, parse_glob, parse_path
from .text import shown

MOST_RULES = 10_000
MOST_TEXT = 1 << 20
HIGHEST_PRIORITY = 10**9
LEVELS: tuple[Level, ...] = get_args(Level)
KINDS: tuple[RuleKind, ...] = ("file", "directory", "glob")

_SHOWN_LOSERS = 3


class _Ranked(NamedTuple):
    rule: PathRule
    glob: Glob
    place: int

    @property
    def key(self) -> tuple[int, int, bool, int, int, int]:
        """Smaller wins."""
        rule, glob = self.rule, self.glob
        return -rule.priority, KINDS.index(rule.kind), not glob.literal, glob.wildcards, -glob.literal, -self.place


_FIELDS = ", ".join(PathRule._fields)
# What other products call them.
_OTHER_NAMES = {"permission": "level", "permissions": "level", "access": "level", "mode": "level", "type": "kind",
                "path": "pattern", "glob": "pattern"}  # fmt: skip


def check_rules(value: object) -> tuple[PathRule, ...]:
    """Rules from `PathRule`s, mappings with its fields, or pairs of pattern and level, in the same order.

    Raises:
        InvalidInput: the first thing that is wrong, with what to write instead.
    """
    if isinstance(value, str | bytes | Mapping | PathRule) or not isinstance(value, Iterable):
        raise InvalidInput(f"The rules are {shown(value)}; give a list such as [PathRule('src/**', 'read')].")
    rules: list[PathRule] = []
    text = 0
    for each in value:
        rule = _check_rule(each)
        text += len(rule.pattern)
        rules.append(rule)
        if len(rules) > MOST_RULES or text > MOST_TEXT:
            raise InvalidInput(f"There are too many rules; at most {MOST_RULES} with {MOST_TEXT} characters are taken.")
    return tuple(rules)


def _check_rule(value: object) -> PathRule:
    rule = _as_rule(value)
    if rule.kind not in KINDS:
        raise InvalidInput(f"The rule for {shown(rule.pattern)} has the kind {shown(rule.kind)}; give 'glob', "
                           "'directory' or 'file'.")  # fmt: skip
    check_pattern(rule.pattern, rule.kind)
    if rule.level not in LEVELS:
        raise InvalidInput(f"The rule for {shown(rule.pattern)} has the level {shown(rule.level)}; give 'none', "
                           "'view', 'read' or 'write'.")  # fmt: skip
    priority: object = rule.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > HIGHEST_PRIORITY:
        raise InvalidInput(f"The rule for {shown(rule.pattern)} has the priority {shown(priority)}; give a whole "
                           f"number from -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}.")  # fmt: skip
    _parsed(rule)
    return rule


def _as_rule(value: object) -> PathRule:
    if isinstance(value, PathRule):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, tuple | list) and len(value) == 2:
        return PathRule(*value)
    raise InvalidInput(f"The rule {shown(value)} is no rule; give a PathRule, a mapping with its fields, or a pair "
                       "such as ('src/**', 'read').")  # fmt: skip


def _from_mapping(value: Mapping[str, object]) -> PathRule:
    unknown = [key for key in value if key not in PathRule._fields]
    if unknown:
        meant = _OTHER_NAMES.get(str(unknown[0]), "")
        guess = f"did you mean {meant!r}?" if meant and meant not in value else ""
        raise InvalidInput(f"A rule has no {shown(unknown[0])}; {guess or f'the names are {_FIELDS}.'}")
    missing = [key for key in ("pattern", "level") if key not in value]
    if missing:
        raise InvalidInput(f"The rule {shown(dict(value))} has no {missing[0]}.")
    return PathRule(**value)  # type: ignore[arg-type]  # each value is checked afterwards


def _parsed(rule: PathRule) -> Glob:
    hides = rule.level == "none"
    if rule.kind == "glob":
        return parse_glob(rule.pattern, hides=hides)
    return parse_path(rule.pattern, below=hides or rule.kind == "directory")


class Matcher:
    """Rules, compiled once: the first alternative that matches is the rule that wins.

    Raises:
        InvalidInput: as `check_rules`.
    """

    def __init__(self, rules: Iterable[object]) -> None:
        self.rules = check_rules(rules)
        ranked = [_Ranked(rule, _parsed(rule), index) for index, rule in enumerate(self.rules)]
        self._ranked = sorted(ranked, key=lambda each: each.key)
        self._match = re.compile(_alternation(self._ranked), re.DOTALL).match
        self._levels: list[Level] = ["none", *(each.rule.level for each in self._ranked)]
        shows = (number for number, level in enumerate(self._levels) if level != "none")
        self._first_to_show = next(shows, len(self._levels))

    def level(self, path: str, directory: bool = False) -> Level:
        """The level that the rules give to `path`; whether it is a directory never changes it.

        A path that is not written as this module says, for instance with ".." in it, matches nothing.
        """
        found = self._match(path)
        return "none" if found is None or not _is_plain(path) else self._levels[found.lastindex or 0]

    def hides_all_below(self, path: str) -> bool:
        """Whether nothing below `path` can be visible, so that nobody needs to look there.

        A rule that hides a path hides all below, unless a stronger one shows some of it. False says nothing.
        """
        found = self._match(path)
        return found is not None and 0 < (found.lastindex or 0) < self._first_to_show

    def winner(self, path: str) -> PathRule | None:
        """The rule that gives `path` its level, or None where no rule matches."""
        found = self._match(path)
        return None if found is None or not _is_plain(path) else self._ranked[(found.lastindex or 0) - 1].rule

    def matching(self, path: str) -> list[PathRule]:
        """All rules that match, the winner first. Slow: for people who want to know."""
        return [each.rule for each in self._contenders(path)]

    def explain(self, path: str) -> Explanation:
        """The level of `path`, and a sentence on which rule gave it and why that one."""
        contenders = self._contenders(path)
        if not contenders:
            return Explanation(path, "none", None, "No rule matches it, and what no rule matches is hidden.")
        first, *losers = contenders
        sentence = f"T{_named(first.rule)[1:]} gives it {first.rule.level!r}"
        if not losers:
            return Explanation(path, first.rule.level, first.rule, f"{sentence}; no other rule matches.")
        reasons = [f"it beats {_named(loser.rule)}, {_advantage(first, loser)}" for loser in losers[:_SHOWN_LOSERS]]
        if len(losers) > _SHOWN_LOSERS:
            reasons.append(f"and {len(losers) - _SHOWN_LOSERS} more that match")
        return Explanation(path, first.rule.level, first.rule, f"{sentence}; {'; '.join(reasons)}.")

    def plan_levels(self, entries: Iterable[tuple[str, bool]]) -> dict[str, Level]:
        """The effective level of each (path, is_directory), and of every directory on the way to a visible one.

        A directory that is not visible itself is "view" when anything below it is visible.
        """
        plan: dict[str, Level] = {path: self.level(path, directory) for path, directory in entries}
        lifted: set[str] = set()
        for path, level in plan.items():
            if level == "none":
                continue
            above = path
            while above and (above := above.rpartition("/")[0]) not in lifted:
                lifted.add(above)
        for path in lifted:
            if plan.get(path, self.level(path, directory=True)) == "none":
                plan[path] = "view"
            else:
                plan.setdefault(path, self.level(path, directory=True))
        return plan

    def _contenders(self, path: str) -> list[_Ranked]:
        if not _is_plain(path):
            return []
        return [each for each in self._ranked if re.match(each.glob.expression, path, re.DOTALL)]


def _alternation(ranked: list[_Ranked]) -> str:
    """One expression for all rules; the number of its only group that matched is the place of the winner.

    Rules for any depth have to look at every name of a path. Those that follow each other are looked for together
    first, which is over ten times quicker where none of them matches.
    """
    found: list[str] = []
    run: list[_Ranked] = []
    for each in [*ranked, None]:
        if each is not None and each.glob.probe:
            run.append(each)
            continue
        if run:
            found.append(_together(run))
            run = []
        if each is not None:
            found.append(f"{each.glob.expression}()")
    return "|".join(found) if found else r"(?!)"


def _together(run: list[_Ranked]) -> str:
    each_alone = "|".join(f"{each.glob.expression}()" for each in run)
    if len(run) == 1:
        return each_alone
    probes = [each.glob.probe for each in run]
    endings = [probe.removeprefix(ANY) for probe in probes if probe.startswith(ANY)]
    if endings:
        probes = [f"{ANY}(?:{'|'.join(endings)})", *(probe for probe in probes if not probe.startswith(ANY))]
    return f"(?=(?:.*/)?(?:{'|'.join(probes)}))(?:{each_alone})"


def _is_plain(path: str) -> bool:
    """Whether a path has no empty names, nor "." or ".." among them."""
    if "//" in path or path[:1] in ("/", ".") or "/." in path or path[-1:] == "/":
        return not path or not any(name in ("", ".", "..") for name in path.split("/"))
    return True


def _named(rule: PathRule) -> str:
    priority = f" of priority {rule.priority}" if rule.priority else ""
    return f"the {rule.kind} rule {shown(rule.pattern)}{priority}"


def _advantage(winner: _Ranked, loser: _Ranked) -> str:
    if winner.rule.priority != loser.rule.priority:
        return "which has a lower priority"
    if winner.rule.kind != loser.rule.kind:
        return f"since {winner.rule.kind} rules come before {loser.rule.kind} rules"
    if winner.glob.literal and not loser.glob.literal:
        return "which has no literal character"
    if winner.glob.wildcards != loser.glob.wildcards:
        return "which has more wildcards"
    if winner.glob.literal != loser.glob.literal:
        return "which has fewer literal characters"
    return "which was given earlier"
