"""From the arguments of `run`, `stream`, `start` and `run_code` to what the guest is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import InvalidInput
from ..policy.env import check_env
from ..policy.limits import check_timeout
from ..policy.paths import check_path
from ..policy.sizes import parse_size
from ..policy.text import kind_of, short, shown

if TYPE_CHECKING:
    from datetime import timedelta

Command: TypeAlias = "str | Sequence[str | bytes | os.PathLike[str]]"
Seconds: TypeAlias = "float | timedelta | str"
"""A time: seconds, a `timedelta`, or text such as "90s", "5m", "2h" or "1d"."""
Timeout: TypeAlias = "Seconds | Literal['default'] | None"

MAX_OUTPUT = 16 << 20
_MAX_ARGUMENT = (128 << 10) - 1
_MAX_ARGUMENTS = 2 << 20
_SHELL = "/bin/sh"


def exec_request(
    command: Command,
    shell: str | None = None,
    *,
    stdin: bool,
    env: Mapping[str, str] | None,
    workdir: str | os.PathLike[str] | None,
    timeout: float | None,
    limit: int | None = None,
) -> dict[str, Any]:
    """Raises InvalidInput."""
    argv = _argv(command, shell)
    request: dict[str, Any] = {"op": "exec", "argv": argv, "stdin": stdin, "timeout": timeout}
    if shell is None and isinstance(command, str):
        request["bash"] = True
    if limit is not None:
        request["limit"] = parse_size(limit, "max_output")
    add_surroundings(request, env, workdir)
    return request


def line_of(argv: list[str]) -> str:
    """A command in short, as it is shown to people."""
    return short(argv[-1] if argv[1:-1] == ["-c"] else " ".join(argv))


def add_surroundings(
    request: dict[str, Any], env: Mapping[str, str] | None, workdir: str | os.PathLike[str] | None
) -> None:
    if env:
        request["env"] = check_env(env)
    if workdir is not None:
        request["cwd"] = check_path(workdir, "workdir")


def choose_timeout(timeout: Timeout, default: float | None) -> float | None:
    return default if timeout == "default" else check_timeout(timeout)


def terminal_size(pty: object) -> list[int] | None:
    """Rows and columns, or None for pipes. Raises InvalidInput."""
    if isinstance(pty, bool):
        return [24, 80] if pty else None
    if isinstance(pty, tuple | list) and len(pty) == 2 and all(map(_is_length, pty)):
        return list(pty)
    raise InvalidInput(f"pty is {shown(pty)}; give True or (rows, columns).")


def check_signal(number: object) -> int:
    """From a number, a member of `signal.Signals`, or a name such as "TERM" or "SIGTERM". Raises InvalidInput."""
    found = _signal_named(number) if isinstance(number, str) else number
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= 64:
        raise InvalidInput(
            f"The signal is {shown(number)}; give a name such as 'TERM', or a number from 1 to 64, such as "
            "signal.SIGTERM."
        )
    return int(found)


def _signal_named(name: str) -> int | None:
    import signal

    plain = name.strip().upper().removeprefix("SIG")
    return next((each.value for each in signal.Signals if each.name == f"SIG{plain}"), None)


def check_pid(pid: object) -> int:
    """Raises InvalidInput."""
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 1 << 31:
        raise InvalidInput(f"The pid is {shown(pid)}; give one that `processes` or a Process names.")
    return pid


def several(commands: Iterable[Command]) -> list[Command]:
    """Commands as a list. Raises InvalidInput for one command, which would be taken apart into letters."""
    given: object = commands
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput(f"commands is {shown(given)}; give a list of commands, or call `run` for one.")
    return list(given)


def _is_length(value: object) -> bool:
    return type(value) is int and 0 < value < 1 << 16


def _shell(shell: object) -> str:
    """The program that takes a line of text. Raises InvalidInput."""
    if shell is None or shell == "sh":
        return _SHELL
    if not isinstance(shell, str) or not shell.strip() or shell.startswith("-"):
        raise InvalidInput(f"shell is {shown(shell)}; give the name of one, such as 'sh'. Text goes to a shell anyway.")
    return shell


def _argv(command: object, shell: object = None) -> list[str]:
    if isinstance(command, str):
        argv = [_shell(shell), "-c", command] if command.strip() else []
    elif shell is not None:
        raise InvalidInput("shell= is for a command that is text; a list is a program and its arguments.")
    elif isinstance(command, Sequence) and not isinstance(command, bytes | bytearray):
        argv = [_argument(argument) for argument in command]
    else:
        raise InvalidInput(f"The command is {kind_of(command)}; give text for a shell, or a list of arguments.")
    if not argv or not argv[0]:
        raise InvalidInput("The command is empty; give text for a shell, or a list that begins with a program.")
    if sum(map(_size, argv)) > _MAX_ARGUMENTS:
        raise InvalidInput(
            f"The command has more than {_MAX_ARGUMENTS} bytes, which no kernel takes; "
            "pass large things by stdin or as a file."
        )
    return argv


def _argument(argument: object) -> str:
    try:
        return os.fsdecode(argument)  # type: ignore[arg-type]  # it says itself what it takes
    except TypeError:
        raise InvalidInput(f"The command holds {shown(argument)}; arguments are text.") from None


def _size(argument: str) -> int:
    if "\0" in argument:
        raise InvalidInput("The command holds a NUL byte, which no argument can.")
    try:
        size = len(argument.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise InvalidInput("The command holds half a surrogate pair, which stands for no byte.") from None
    if size > _MAX_ARGUMENT:
        raise InvalidInput(
            f"An argument of the command has {size} bytes; the kernel takes at most {_MAX_ARGUMENT}. "
            "Pass large things by stdin or as a file."
        )
    return size
