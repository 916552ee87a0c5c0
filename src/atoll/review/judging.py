"""What the rules and the ignores say of a path, in one place for the diff and for the merge."""

from __future__ import annotations

from typing import Protocol

from ..types import Level
from .stage import Stage
from .tree import split

# Where an apply keeps what it has not put in place yet; in the source's root.
STAGING_PREFIX = ".atoll-apply-"


class Levels(Protocol):
    """Path rules, compiled: `policy.rules.Matcher`."""

    def level(self, path: str, directory: bool = False) -> Level: ...


class Ignores(Protocol):
    """Patterns of ignored paths, compiled: `policy.ignores.Ignores`. What is below an ignored directory is, too."""

    def ignored(self, path: str, directory: bool) -> bool: ...


class Judge:
    """The level of a path. Without rules everything can be written to; without ignores nothing is ignored."""

    def __init__(self, levels: Levels | None, ignores: Ignores | None) -> None:
        self._levels = levels
        self._ignores = ignores

    def level(self, path: str, directory: bool) -> Level:
        """What the rules alone say."""
        return "write" if self._levels is None else self._levels.level(path, directory)

    def is_ignored(self, path: str, directory: bool) -> bool:
        """Whether a path, or a directory above it, is ignored."""
        return self._ignores is not None and self._ignores.ignored(path, directory)

    def is_ignored_above(self, path: str) -> bool:
        """Whether a directory above it is ignored."""
        return self._ignores is not None and self._ignores.ignored(split(path)[0], True)

    def is_reserved(self, path: str) -> bool:
        """Whether it lies where an apply works, which nothing else may."""
        return path.startswith(STAGING_PREFIX)

    def seen(self, path: str, directory: bool) -> Level:
        """The level with which a sandbox sees a path of the source: "none" for what is ignored or reserved."""
        if self.is_reserved(path) or self.is_ignored(path, directory):
            return "none"
        return self.level(path, directory)


def judge_of(stage: Stage) -> Judge:
    """Raises InvalidInput for rules that make no sense."""
    levels: Levels | None = None
    ignores: Ignores | None = None
    if stage.permissions is not None:
        from ..policy.rules import Matcher

        levels = Matcher(stage.permissions.rules)
    if stage.ignore:
        from ..policy.ignores import Ignores as Patterns

        ignores = Patterns(stage.ignore)
    return Judge(levels, ignores)
