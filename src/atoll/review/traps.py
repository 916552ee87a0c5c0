"""Files whose mere presence has git run commands on the host, the next time that anybody uses it there."""

from __future__ import annotations

_COMMANDS = frozenset(("config", "config.worktree", "hooks"))


def springs(path: str, *, directory: bool) -> bool:
    """Whether git takes commands from what lies at a path: hooks, a configuration, or a pointer to others."""
    names = path.lower().split("/")
    if ".git" not in names:
        return False
    below = names[names.index(".git") + 1 :]
    if not below:
        return not directory
    # A submodule's and a worktree's are further down.
    return below[0] in _COMMANDS or (below[0] in ("modules", "worktrees") and not _COMMANDS.isdisjoint(below))
