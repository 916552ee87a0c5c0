"""Starting processes. Pipes go through vfork, which a guest of any size pays alike for; terminals fork.

A child gets descriptors 0, 1 and 2, the environment that it is given, its own session, and nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import termios
from typing import Callable, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from . import attendant
from .descriptors import close_all, pipe
from .refusal import UNSUPPORTED, Refused, no_process_left

# What Python ignores and its children should not.
_IGNORED = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(signal, name)]

NOT_FOUND = 127
NOT_EXECUTABLE = 126


class Command(NamedTuple):
    """What to start. It starts in the directory that the guest is in at that moment."""

    argv: List[bytes]
    env: Dict[bytes, bytes]


class Child(NamedTuple):
    """A started process and the guest's ends of its descriptors. On a terminal `stderr` is None.

    `attendant` is the pipe to one that sends the signals of the terminal, where the kernel does not.
    """

    pid: int
    stdin: Optional[int]
    stdout: int
    stderr: Optional[int]
    attendant: Optional[int] = None


class CannotStart(Exception):
    """The command itself is at fault; a shell would say so on stderr and exit with `exit_code`."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason


def spawn_pipes(command: Command, wants_stdin: bool, devnull: int) -> Child:
    """Start a process on pipes.

    Raises:
        CannotStart: there is no such program, or it cannot be executed.
        Refused: the sandbox has no process or descriptor left.
    """
    made: List[int] = []
    try:
        stdin, stdin_end = pipe(made) if wants_stdin else (devnull, -1)
        stdout_end, stdout = pipe(made)
        stderr_end, stderr = pipe(made)
        pid = spawn_with(command, [(stdin, 0), (stdout, 1), (stderr, 2)])
    except BaseException:
        close_all(made)
        raise
    close_all([stdout, stderr] + ([stdin] if wants_stdin else []))
    return Child(pid, stdin_end if wants_stdin else None, stdout_end, stderr_end)


def spawn_with(command: Command, descriptors: Sequence[Tuple[int, int]]) -> int:
    """Start a process with these descriptors, given as ours and its, and no others; its pid.

    None of its numbers may be one of ours. Raises as `spawn_pipes` does. Not by `subprocess`: it imports
    `threading`, whose fork hook makes every process of a sandbox 0.4 MB larger.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, copy) for fd, copy in descriptors]

    def start(path: bytes) -> int:
        return os.posix_spawn(
            path, command.argv, command.env, file_actions=actions, setsid=True, setsigdef=_IGNORED, setsigmask=()
        )

    try:
        return _found(command, start)
    except OSError as error:
        raise _refusal(command, error) from error


def _found(command: Command, start: Callable[[bytes], int]) -> int:
    """Start the program from the first directory of PATH where that works.

    As a shell does: a file that may not be executed is remembered, a later directory may have a better one.

    Raises:
        OSError: it works nowhere.
    """
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _candidates(command):
        try:
            return start(path)
        except OSError as error:
            if error.errno == errno.EACCES and os.path.lexists(path):
                failure = error
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise
    raise failure


def _candidates(command: Command) -> List[bytes]:
    name = command.argv[0]
    if b"/" in name or not name:
        return [name]
    return [os.path.join(directory, name) for directory in command.env.get(b"PATH", b"/usr/bin:/bin").split(b":")]


def spawn_terminal(command: Command, size: Tuple[int, int]) -> Child:
    """Start a process on a terminal of its own. Raises as `spawn_pipes` does."""
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise Refused(UNSUPPORTED, "This sandbox has no terminals: %s." % error.strerror) from error
    made = [master, slave]
    try:
        resize(master, size)
        stdin = os.dup(master)
        made.append(stdin)
        told, tell = pipe(made)
        orders, give = pipe(made) if attendant.needed() else (None, None)
        pid = _fork(command, slave, tell, orders)
    except BaseException:
        close_all(made)
        raise
    close_all([slave, tell] + ([] if orders is None else [orders]))
    with open(told, "rb") as story:
        failure = story.read(16)
    if failure:
        os.waitpid(pid, 0)
        close_all([master, stdin] + ([] if give is None else [give]))
        number = int(failure)
        raise _refusal(command, OSError(number, os.strerror(number)))
    if give is not None:
        os.set_blocking(give, False)
    return Child(pid, stdin, master, None, give)


def _fork(command: Command, slave: int, tell: int, orders: Optional[int]) -> int:
    try:
        pid = os.fork()
    except OSError as error:
        raise _refusal(command, error) from error
    if pid == 0:
        _become(command, slave, tell, orders)
    return pid


def _become(command: Command, slave: int, tell: int, orders: Optional[int]) -> NoReturn:
    """In the child. `tell` closes on exec, or carries the errno that prevented it."""
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in (0, 1, 2):
            os.dup2(slave, fd)
        default_signals()
        if orders is not None:
            attendant.attend(orders, slave)
        _found(command, lambda path: os.execve(path, command.argv, command.env))  # noqa: S606  # argv, no shell
    except OSError as error:
        os.write(tell, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(NOT_FOUND)


def default_signals() -> None:
    """Undo what Python ignores, in a child that was forked."""
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)


def resize(terminal: int, size: Tuple[int, int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[0], size[1], 0, 0))


def _refusal(command: Command, error: OSError) -> Exception:
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return no_process_left()
    name = command.argv[0].decode("utf-8", "replace")[:200]
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        found = b"/" in command.argv[0] and os.path.lexists(command.argv[0])
        reason = "its interpreter was not found" if found else "command not found"
        return CannotStart(NOT_FOUND, "%s: %s" % (name, reason))
    return CannotStart(NOT_EXECUTABLE, "%s: cannot execute: %s" % (name, os.strerror(error.errno or errno.EIO)))
