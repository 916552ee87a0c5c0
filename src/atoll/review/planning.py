"""From changes that may go into the source to what has to happen there, in which order."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ..types import Change
from .comparing import Difference
from .looking import Look
from .selection import parents
from .traps import completes
from .tree import is_too_deep, join

_ASIDE = "Its directory {} is not applied."


class Plan(NamedTuple):
    """Paths to take out of the source, the deepest first; files to change where they are; and what to put in, the
    outermost first. A path may be taken out and put in again, as something else."""

    removals: tuple[str, ...]
    changes: tuple[str, ...]
    additions: tuple[str, ...]


class Planner:
    """Makes a plan of what was accepted. What cannot be done after all is moved to `rejected`, with the reason."""

    def __init__(self, look: Look, accepted: dict[str, Difference], rejected: dict[str, str]) -> None:
        self._look = look
        self.accepted = accepted
        self.rejected = rejected

    def plan(self) -> Plan:
        self._keep_filled_directories()
        self._make_directories()
        # A directory that could not be made may have been one to take out first.
        self._keep_filled_directories()
        removals = [path for path, each in self.accepted.items() if _is_removed(each)]
        additions = [path for path, each in self.accepted.items() if _is_put(each)]
        changes = [path for path, each in self.accepted.items() if not _is_removed(each) and not _is_put(each)]
        return Plan(tuple(sorted(removals, reverse=True)), tuple(sorted(changes)), tuple(sorted(additions)))

    def _reject(self, path: str, reason: str) -> None:
        del self.accepted[path]
        self.rejected[path] = reason

    def _keep_filled_directories(self) -> None:
        for path in sorted(self.accepted, reverse=True):
            difference = self.accepted[path]
            if difference.old is None or not stat.S_ISDIR(difference.old.st_mode):
                continue
            staying = [name for name in self._look.source.names(path) if not self._goes(join(path, name))]
            if staying:
                self._reject(path, f"The source's directory still holds {len(staying)} things that stay.")

    def _goes(self, path: str) -> bool:
        difference = self.accepted.get(path)
        return difference is not None and _is_removed(difference)

    def _make_directories(self) -> None:
        for path in sorted(self.accepted):
            if self.accepted[path].new is None:
                continue
            for above in parents(path):
                reason = self._make_directory(above)
                if reason is not None:
                    self._reject(path, reason)
                    break

    def _make_directory(self, path: str) -> str | None:
        """See to it that a directory will be there; why it will not be."""
        planned = self.accepted.get(path)
        if planned is not None and planned.new is not None:
            return None if stat.S_ISDIR(planned.new.st_mode) else _ASIDE.format(path)
        if path in self.rejected:
            there = self._look.source.stat(path)
            return None if _is_directory(there) else _ASIDE.format(path)
        there = self._look.source.stat(path)
        if _is_directory(there) and planned is None:
            return None
        return self._imply(path, there)

    def _imply(self, path: str, there: os.stat_result | None) -> str | None:
        """Add a directory that nobody asked for, but that something needs."""
        new = self._look.merged.stat(path)
        if there is not None or not _is_directory(new) or new is None:
            return f"The source has no directory {path}, and none of that name is applied."
        if self._look.judge.seen(path, directory=True) != "write" or is_too_deep(path):
            return f"The rules do not let its directory {path} be made."
        if completes(path, self._look.may_be_there):
            return f"Its directory {path} would make a repository of git's, whose commands git would run."
        self.accepted[path] = implied(path, new)
        return None


def implied(path: str, new: os.stat_result) -> Difference:
    mode = stat.S_IMODE(new.st_mode)
    return Difference(Change(path, "added", "directory", None, mode, 0, None, None), None, new)


def _is_directory(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISDIR(found.st_mode)


def _turns(difference: Difference) -> bool:
    """Whether a directory becomes something else, or something else a directory."""
    return difference.old is not None and _is_directory(difference.old) != _is_directory(difference.new)


def _is_removed(difference: Difference) -> bool:
    return difference.new is None or _turns(difference)


def _is_put(difference: Difference) -> bool:
    return difference.new is not None and (difference.old is None or _turns(difference))
