"""Files whose mere presence has git run commands on the host, the next time that anybody uses it there."""

from __future__ import annotations

from collections.abc import Callable

_COMMANDS = frozenset(("config", "config.worktree", "hooks"))
# Where it says that another directory has the commands.
_POINTER = "commondir"


def springs(path: str, *, directory: bool, link: bool = False) -> bool:
    """Whether git takes commands from what lies at a path: hooks, a configuration, or a pointer to others."""
    names = path.lower().split("/")
    if ".git" not in names:
        return False
    below = names[names.index(".git") + 1 :]
    if not below:
        return not directory
    if link or _POINTER in below:
        return True
    # A submodule's and a worktree's are further down.
    return below[0] in _COMMANDS or (below[0] in ("modules", "worktrees") and not _COMMANDS.isdisjoint(below))


def completes(path: str, exists: Callable[[str], bool]) -> bool:
    """Whether a path makes a repository of the directory that it lies in, or gives one its commands.

    To git every directory with a HEAD and objects is one, whatever it is called, and so is one that points to those.
    """
    names = path.split("/")
    if ".git" in map(str.lower, names):
        return False
    above = names[:-1]

    def there(name: str, place: list[str]) -> bool:
        return exists("/".join([*place, name]))

    if names[-1] == "HEAD":
        return there("objects", above) or there(_POINTER, above)
    if names[-1] in ("objects", _POINTER):
        return there("HEAD", above)
    for depth, name in enumerate(names):
        place = names[:depth]
        if name in _COMMANDS and there("HEAD", place) and (there("objects", place) or there(_POINTER, place)):
            return True
    return False
