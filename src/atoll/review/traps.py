"""Files whose mere presence has git or another tool run commands on the host, when somebody works there as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

# A rebase or a sequence of picks that is under way has lines to execute when somebody goes on with it.
_COMMANDS = frozenset(("config", "config.worktree", "hooks", "rebase-merge", "rebase-apply", "sequencer"))
# Where it says that another directory has the commands.
_POINTER = "commondir"
# What makes a repository of a directory, together.
_PARTS = frozenset(("head", "objects", _POINTER))

# What editors, assistants and shells read when a directory is opened or entered, and take commands from: servers that
# they start, tasks, hooks, paths of programs. Whole directories, since each release of such a tool knows more files.
STARTING_DIRECTORIES = frozenset((
    ".aider", ".amazonq", ".amp", ".augment", ".bzr", ".claude", ".cline", ".codeium", ".codex", ".continue", ".crush",
    ".cursor", ".devcontainer", ".direnv", ".factory", ".fleet", ".gemini", ".goose", ".helix", ".hg", ".husky",
    ".idea", ".jj", ".junie", ".kilocode", ".kiro", ".lefthook", ".mcp", ".mise", ".nova", ".nvim", ".opencode",
    ".openhands", ".qwen", ".roo", ".sl", ".theia", ".trae", ".vibe", ".vim", ".vs", ".vscode", ".windsurf", ".yarn",
    ".zed", "_darcs",
))  # fmt: skip
_STARTING_FILES = frozenset((
    ".aider.conf.yml", ".autoenv", ".autoenv.zsh", ".crush.json", ".devcontainer.json", ".dir-locals-2.el",
    ".dir-locals.el", ".envrc", ".exrc", ".gdbinit", ".kateproject", ".lazy.lua", ".lldbinit", ".local.vimrc",
    ".lvimrc", ".mcp.json", ".mise.local.toml", ".mise.toml", ".netrc", ".npmrc", ".nvim.lua", ".nvimrc",
    ".pnpmfile.cjs", ".rvmrc", ".tool-versions", ".vimrc", ".yarnrc", ".yarnrc.yml", "atoll.toml", "crush.json",
    "mise.local.toml", "mise.toml", "opencode.json", "opencode.jsonc", "pyvenv.cfg",
))  # fmt: skip
_STARTING_ENDINGS = (".code-workspace", ".sublime-project", ".sublime-workspace")
# What Python imports when it starts, from whichever directory is on its path.
_STARTING_MODULES = ("sitecustomize", "usercustomize")
_PYTHON_LIBRARIES = frozenset(("site-packages", "dist-packages"))

# Hidden files that tell tools what to leave out or how to indent: nothing is run because of them.
_PLAIN_HIDDEN = frozenset((
    ".dockerignore", ".editorconfig", ".eslintignore", ".gitattributes", ".gitignore", ".gitkeep", ".helmignore",
    ".keep", ".mailmap", ".npmignore", ".prettierignore",
))  # fmt: skip
# Signs that are as good as none to a file system that folds names, besides those of the category Cf.
_IGNORED = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")


def folded(name: str) -> str:
    """A name as it is to the most forgiving file systems: whatever is the same file to any of them is the same here.

    ext4 and APFS fold case in Unicode's way and skip signs that nobody sees; Windows skips dots and blanks at the end.
    """
    if not name.isascii():
        from unicodedata import category, normalize

        visible = "".join(
            sign for sign in name
            if category(sign) != "Cf" and sign not in _IGNORED
            and not ("\ufe00" <= sign <= "\ufe0f" or "\U000e0100" <= sign <= "\U000e01ef")
        )  # fmt: skip
        name = normalize("NFKC", normalize("NFKC", visible).casefold())
    name = name.casefold().rstrip(" .") or name
    return ".git" if name == "git~1" else name


def unseen(path: str, exists: Callable[[str], bool]) -> str | None:
    """The hidden file or directory with which a path is new to the source, None if there is none such.

    No list of dangerous names is ever complete: the next tool has another. So a hidden name that the source does not
    have yet needs a word of its own. Those that it has are the user's already.
    """
    names = path.split("/")
    for depth, name in enumerate(names, 1):
        if not name.startswith(".") or (depth == len(names) and name in _PLAIN_HIDDEN):
            continue
        if not exists("/".join(names[:depth])):
            return "/".join(names[:depth])
    return None


def starts(path: str, *, directory: bool) -> bool:
    """Whether a tool takes commands from what lies at a path, by itself: such as `.mcp.json` or `.vscode/tasks.json`.

    A directory of such a name is none yet. What is below is, and so is a link of that name, which leads to others.
    """
    names = [folded(each) for each in path.split("/")]
    *above, name = names
    if not STARTING_DIRECTORIES.isdisjoint(above) or not set(_STARTING_MODULES).isdisjoint(above):
        return True
    if directory:
        return False
    if name.endswith(".pth"):  # elsewhere it is a model of PyTorch's
        return not _PYTHON_LIBRARIES.isdisjoint(above)
    return (
        name in STARTING_DIRECTORIES
        or name in _STARTING_FILES
        or name.endswith(_STARTING_ENDINGS)
        or name.partition(".")[0] in _STARTING_MODULES
    )


def springs(path: str, *, directory: bool, link: bool = False) -> bool:
    """Whether git takes commands from what lies at a path: hooks, a configuration, or a pointer to others."""
    names = [folded(each) for each in path.split("/")]
    if ".git" not in names:
        return False
    below = names[names.index(".git") + 1 :]
    if not below:
        return not directory
    if link or _POINTER in below:
        return True
    # A submodule's and a worktree's are further down.
    return below[0] in _COMMANDS or (below[0] in ("modules", "worktrees") and not _COMMANDS.isdisjoint(below))


def folded_path(path: str) -> str:
    return "/".join(map(folded, path.split("/")))


def parts_of_repositories(path: str) -> Iterator[str]:
    """What `completes` asks for of a path and the directories above it, folded."""
    names = folded_path(path).split("/")
    return ("/".join(names[:depth]) for depth, name in enumerate(names, 1) if name in _PARTS)


def completes(path: str, exists: Callable[[str], bool]) -> bool:
    """Whether a path makes a repository of the directory that it lies in, or gives one its commands.

    To git every directory with a HEAD and objects is one, whatever it is called, and so is one that points to those.
    """
    names = path.split("/")
    plain = [folded(each) for each in names]
    if ".git" in plain:
        return False
    above = names[:-1]

    def there(name: str, place: list[str]) -> bool:
        return exists("/".join([*place, name]))

    if plain[-1] == "head":
        return there("objects", above) or there(_POINTER, above)
    if plain[-1] in ("objects", _POINTER):
        return there("HEAD", above)
    for depth, name in enumerate(plain):
        place = names[:depth]
        if name in _COMMANDS and there("HEAD", place) and (there("objects", place) or there(_POINTER, place)):
            return True
    return False
