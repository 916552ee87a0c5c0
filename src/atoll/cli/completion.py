"""`atoll completion`: what a shell completes after the Tab key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from . import COMMANDS
from .output import say
from .parsing import Described, Parser, UsageError, is_option

_DESCRIPTION = """\
Print a script that has your shell complete commands, options, and the ids and
names of sandboxes, snapshots, codebases and agents' runs.
"""

_EPILOG = """\
examples:
  eval "$(atoll completion bash)"      in ~/.bashrc
  eval "$(atoll completion zsh)"       in ~/.zshrc, after compinit
  atoll completion fish | source       in ~/.config/fish/config.fish
"""

# Each asks `atoll completion words` what could be there, and takes a line as a word, a tab, and what it is; `:files`
# and `:directories` as its own. What begins otherwise than the word under the cursor is not among them.
_SCRIPTS = {
    "bash": r"""_atoll() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) compopt -o default ;;
            :directories) compopt -o dirnames ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <(command atoll completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case ${COMPREPLY[0]} in *:) compopt -o nospace ;; esac
}
complete -F _atoll atoll""",
    "zsh": r"""#compdef atoll
_atoll() {
    local line name kind
    local -a found
    for line in "${(@f)$(command atoll completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            '') ;;
            :files) kind=files ;;
            :directories) kind=directories ;;
            *) name=${line%%$'\t'*}; found+=("${name//:/\\:}:${line#*$'\t'}") ;;
        esac
    done
    (( $#found )) && _describe -V atoll found
    [[ $kind == files ]] && _files
    [[ $kind == directories ]] && _files -/
    return 0
}
if [[ $funcstack[1] == _atoll ]]; then _atoll "$@"; else compdef _atoll atoll; fi""",
    "fish": r"""function __atoll_complete
    set -l current (commandline -ct)
    test (count $current) -eq 0; and set current ''
    set -l before (commandline -opc)
    for line in (command atoll completion words -- $before[2..-1] $current 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path $current
            case ':directories'
                __fish_complete_directories $current
            case '*'
                echo $line
        end
    end
end
complete -c atoll -f -k -a '(__atoll_complete)'""",
}

_Found = Iterable[tuple[str, str]]
_COMMAND = "--"
_FILES, _DIRECTORIES = ":files", ":directories"

# What the words without a dash are, one after the other; the last for all that follow.
_OPERANDS = {
    "run": (_COMMAND,),
    "exec": ("sandbox", _COMMAND),
    "shell": ("sandbox", _COMMAND),
    "repl": ("sandbox", ""),
    "cp": ("place",),
    **dict.fromkeys(("diff", "apply", "discard", "audit", "fork"), ("sandbox", "")),
    **dict.fromkeys(("stop", "destroy"), ("sandbox",)),
    "resume": ("resumable",),
    "rollback": ("sandbox", "snapshot", ""),
    "logs": ("logs", "run"),
    "logs pictures": ("run", _DIRECTORIES),
    "snapshot": ("action",),
    "snapshot create": ("sandbox", ""),
    "snapshot export": ("snapshot", _FILES),
    "snapshot import": (_FILES,),
    "snapshot show": ("snapshot", ""),
    "snapshot delete": ("snapshot",),
    "codebase": ("action",),
    "codebase create": ("", _DIRECTORIES),
    **dict.fromkeys(("codebase upload", "codebase download"), ("codebase", _DIRECTORIES)),
    **dict.fromkeys(("codebase show", "codebase delete"), ("codebase",)),
    "policy": ("check explain presets", _DIRECTORIES, ""),
    "config": ("action", _FILES),
    "validate": ("action", _FILES),
    **dict.fromkeys(("validate run", "validate begin"), (_COMMAND,)),
    "completion": ("bash zsh fish", ""),
}

# What follows an option; of others the name of the value tells whether it is a file.
_VALUES = {
    "--driver": "driver",
    "--snapshot": "snapshot",
    "--codebase": "codebase",
    "--sandbox": "sandbox",
    "--preset": "preset",
    "--lang": "language",
    "--network": "none all host",
    "--status": "creating running paused stopped gone",
    "--on-conflict": "ask keep take",
    "--format": "atif jsonl otel",
    "--client": "claude-code claude-desktop cursor vscode",
    "--scope": "user project",
}
_METAVARS = {"DIR": _DIRECTORIES, "FILE": _FILES, "PATH": _FILES}


def main(words: list[str]) -> int:
    if words[:2] == ["words", "--"]:
        for word, about in completed(words[2:] or [""]):
            say(f"{word}\t{about}" if about else word)
        return 0
    parser = Parser("completion", "bash | zsh | fish", _DESCRIPTION, _EPILOG)
    parser.add_argument("shell", metavar="SHELL", help="for which shell: bash, zsh or fish")
    args = parser.parse_args(words)
    if args.shell not in _SCRIPTS:
        raise UsageError(f"There is no script for {args.shell!r}; say one of {', '.join(_SCRIPTS)}.")
    say(_SCRIPTS[args.shell])
    return 0


def completed(words: list[str]) -> Iterator[tuple[str, str]]:
    """What the last word could become, with what it is; the others are those in front of it, without `atoll`."""
    *before, current = words
    if before[-1:] == ["="]:  # bash takes --name=value for three words
        before.pop()
    elif current == "=" and before and before[-1].startswith("--"):
        current = ""
    option, equals, value = current.partition("=")
    glued = f"{option}=" if equals and option.startswith("--") else ""
    if glued:
        before, current = [*before, option], value
    for word, about in _possible(before, current):
        if word in (_FILES, _DIRECTORIES) or word.startswith(current):
            yield (word if word.startswith(":") else glued + word), about


def _possible(before: list[str], current: str) -> _Found:
    if not before:
        return COMMANDS.items()
    name, *rest = before
    if name not in COMMANDS:
        return COMMANDS.items() if before == ["help"] else ()
    module = __import__(f"{__package__}.{name.replace('-', '_')}", fromlist=["main"])
    parser = _parser(module.main)
    option, operands = _position(name, parser, rest)
    if option is not None:
        return _values(parser, option)
    kind = _kind(name, [*operands, current])
    if current.startswith("-") and _COMMAND not in (_kind(name, operands), *operands):
        return parser.described()
    if kind == "action":
        return [(action, "") for action in module._ACTIONS]  # noqa: SLF001  # of the same package
    return _named(kind)


def _parser(command: Callable[[list[str]], int]) -> Parser:
    try:
        Parser.describing = True
        command([])
    except Described as described:
        return described.parser
    finally:
        Parser.describing = False
    raise AssertionError("a command that parses nothing")


def _position(name: str, parser: Parser, words: list[str]) -> tuple[str | None, list[str]]:
    """The option whose value comes next, if one does, and the words without a dash up to the first of a command."""
    rest, operands = list(words), list[str]()
    while rest and _kind(name, operands) != _COMMAND:
        word = rest.pop(0)
        if word == "--":
            return None, [*operands, _COMMAND]
        if not is_option(word):
            operands.append(word)
            continue
        waits = parser.length([word, *rest, "value"]) == 2
        if waits and not rest:
            return word, operands
        if name == "exec" and word in ("-l", "--label"):
            operands.append("")  # in place of the id
        del rest[: 1 if waits else 0]
    return None, operands


def _kind(name: str, operands: list[str]) -> str:
    """What the last of these words is."""
    if not operands:
        return ""
    if operands[-1] == _COMMAND:
        return _COMMAND
    kinds, at = _OPERANDS.get(name, ("",)), len(operands) - 1
    if at and f"{name} {operands[0]}" in _OPERANDS:
        kinds, at = _OPERANDS[f"{name} {operands[0]}"], at - 1
    return kinds[min(at, len(kinds) - 1)]


def _values(parser: Parser, option: str) -> _Found:
    names, metavar = parser.option(option)
    return _named(next((_VALUES[name] for name in names if name in _VALUES), _METAVARS.get(metavar, "")))


def _named(kind: str) -> _Found:
    if kind in (_COMMAND, _FILES):
        return [(_FILES, "")]
    if kind == _DIRECTORIES:
        return [(kind, "")]
    if kind not in _LISTS:
        return [(word, "") for word in kind.split()]
    from ..errors import AtollError

    with suppress(AtollError, OSError):  # what cannot be read is told by the command itself
        return list(_LISTS[kind]())
    return ()


def _sandboxes() -> _Found:
    from .. import store

    for row in reversed(store.shared().all()):
        worn = ",".join(f"{key}={value}" for key, value in row.labels.items())
        yield row.id, f"{row.status}, {row.driver} {worn}".rstrip()


def _runs() -> _Found:
    from ..agent import journal

    for run in journal.shared().runs(limit=50):
        yield run.id, run.kind


def _snapshots() -> _Found:
    from ..sync.snapshots import Snapshots

    for each in Snapshots().list():
        yield each.name, f"of {each.sandbox}" if each.sandbox else ""


def _codebases() -> _Found:
    from ..sync.codebases import Codebases

    for each in Codebases().list():
        yield each.name or each.id, each.id


def _drivers() -> _Found:
    from .. import registry

    return [(name, "") for name in ("strongest", *registry.names())]


def _presets() -> _Found:
    from ..policy.presets import list_presets

    return [(name, "") for name in list_presets()]


def _languages() -> _Found:
    from .languages import LANGUAGES

    return [(language.name, "") for language in LANGUAGES]


_LISTS: dict[str, Callable[[], _Found]] = {
    "sandbox": _sandboxes,
    "place": lambda: [*((f"{id}:", about) for id, about in _sandboxes()), (_FILES, "")],
    "run": _runs,
    "resumable": lambda: [*_sandboxes(), *_runs()],
    "logs": lambda: [*((word, "") for word in ("list", "show", "export", "pictures", "delete")), *_runs()],
    "snapshot": _snapshots,
    "codebase": _codebases,
    "driver": _drivers,
    "preset": _presets,
    "language": _languages,
}
