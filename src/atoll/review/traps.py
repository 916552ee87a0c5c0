"""Files whose mere presence has git or another tool run commands on the host, when somebody works there as usual."""

from __future__ import annotations

from collections.abc import Callable

_COMMANDS = frozenset(("config", "config.worktree", "hooks"))
# Where it says that another directory has the commands.
_POINTER = "commondir"

# What editors, assistants and shells read when a directory is opened or entered, and take commands from: servers that
# they start, tasks, hooks, paths of programs. Whole directories, since each release of such a tool knows more files.
STARTING_DIRECTORIES = frozenset((
    ".amazonq", ".claude", ".codex", ".continue", ".cursor", ".devcontainer", ".fleet", ".gemini", ".husky", ".idea",
    ".kiro", ".mise", ".opencode", ".roo", ".vs", ".vscode", ".windsurf", ".zed",
))  # fmt: skip
_STARTING_FILES = frozenset((
    ".autoenv", ".autoenv.zsh", ".devcontainer.json", ".dir-locals-2.el", ".dir-locals.el", ".envrc", ".exrc",
    ".lvimrc", ".mcp.json", ".mise.local.toml", ".mise.toml", ".nvim.lua", ".nvimrc", ".vimrc", "atoll.toml",
    "mise.local.toml", "mise.toml", "opencode.json", "opencode.jsonc",
))  # fmt: skip
_STARTING_ENDING = ".code-workspace"


def starts(path: str, *, directory: bool) -> bool:
    """Whether a tool takes commands from what lies at a path, by itself: such as `.mcp.json` or `.vscode/tasks.json`.

    A directory of such a name is none yet. What is below is, and so is a link of that name, which leads to others.
    """
    *above, name = path.lower().split("/")
    if not STARTING_DIRECTORIES.isdisjoint(above):
        return True
    if directory:
        return False
    return name in STARTING_DIRECTORIES or name in _STARTING_FILES or name.endswith(_STARTING_ENDING)


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
