"""A shell that stays: one process whose directory, variables and functions last from cell to cell.

The shell is an interactive one, since only that goes back to its reader when SIGINT interrupts a whole list
of commands. It reads from a pipe of ours that is its standard input; commands run by `eval`, which has
/dev/null there instead and none of our descriptors. Its prompts go to /dev/null. After each command it says
the exit code on a pipe of ours.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any, Dict, List, Optional

from .arguments import encoded
from .contextlink import Listener
from .contextstart import ContextSettings
from .descriptors import close_all, pipe
from .killing import send
from .loop import Timer, nothing
from .machine import Machine
from .pipes import Sink, Source
from .programlink import ProgramLink
from .reaper import exit_code
from .refusal import UNSUPPORTED, Refused, no_process_left

_ARGUMENTS = {
    "bash": ["--norc", "--noprofile", "--noediting", "+H", "+o", "history", "-i"],
    "sh": ["-i"],
    "zsh": ["-f", "-i", "+m"],
}
# POSIX shells take one digit; bash leaves those to the user.
_DESCRIPTORS = {"bash": (60, 61), "sh": (8, 9), "zsh": (8, 9)}
_TEXT_FD = 62
_SETUP = "unset HISTFILE MAILCHECK PROMPT_COMMAND\n"
_ROUNDS = 10
_PAUSE = 0.05
_INSISTING = (0.01, 0.05, 0.2)
_STATUS_LIMIT = 1 << 12
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def _quoted(text: str) -> str:
    return "'%s'" % text.replace("'", "'\\''")


def _assignments(env: Dict[str, str]) -> str:
    """Raises Refused for a name that no shell has variables of."""
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise Refused(UNSUPPORTED, "A shell has no variables with names such as %.100r." % name)
        encoded(value, "A variable")
    return "".join("%s=%s " % (name, _quoted(value)) for name, value in env.items())


class ShellLink(ProgramLink):
    """Starts a shell when it is made. Raises Refused when it cannot be started."""

    def __init__(self, machine: Machine, listener: Listener, settings: ContextSettings, shell: str = "bash") -> None:
        super().__init__(machine, listener, settings)
        self._shell = shell
        self._status_fd, self._error_fd = _DESCRIPTORS[shell]
        self._number = 0
        self._code = 0
        self._said = b""
        self._pressed = self._sweeping = False
        self._timer: Optional[Timer] = None
        made: List[int] = []
        try:
            commands, commands_end = pipe(made)
            status_end, status = pipe(made)
            stdout, stderr = self._outputs(made)
            null = machine.devnull
            theirs = [(commands, 0), (stdout, 1), (null, 2), (status, self._status_fd), (stderr, self._error_fd)]
            self.pid = self._start([shell, *_ARGUMENTS[shell]], theirs, {})
        except OSError as error:
            self._give_up(made)
            raise no_process_left() from error
        except BaseException:
            self._give_up(made)
            raise
        close_all([commands, status, stdout, stderr])
        self._commands = Sink(machine.loop, commands_end)
        self._statuses = Source(machine.loop, status_end, self._hear, lambda: _STATUS_LIMIT, nothing)
        machine.reaper.watch(self.pid, self._exited)
        self._write(_SETUP)

    def _give_up(self, made: List[int]) -> None:
        close_all(made)
        for source in self._sources:
            source.close()

    def _run(self, request: Dict[str, Any]) -> None:
        if request.get("cwd") is not None:
            raise Refused(
                UNSUPPORTED, "A cell of a shell has no workdir of its own: use `cd`, in ( ) for this cell only."
            )
        code = request["code"]
        encoded(code, "The command")
        env = request.get("env") or {}
        given = _assignments(env)
        if env and self._shell == "zsh":
            # It gives them to no program otherwise.
            code = "\\builtin typeset -gx %s; %s%s" % (" ".join(env), _restored(self._code), code)
        self._pressed = False
        self._number += 1
        self._write(self._invocation(code, given) + self._question())

    def _invocation(self, code: str, given: str) -> str:
        """`given` are variables for this alone: a shell takes back what stands before a builtin that is called so."""
        without = "2>&%d %d>&- %d>&-" % (self._error_fd, self._status_fd, self._error_fd)
        if self._shell == "bash":
            # What is sourced is no conversation, so bash does not tell of jobs and terminals, and `return` ends it.
            end = "end-%s" % os.urandom(8).hex()
            source = "%s\\command . /proc/self/fd/%d %d<<'%s' </dev/null %s" % (given, _TEXT_FD, _TEXT_FD, end, without)
            return "%s\nexec %d<&-;%s%s\n%s\n" % (source, _TEXT_FD, _restored(self._code), code, end)
        builtin = "builtin" if self._shell == "zsh" else "command"  # where the other one means something else
        return _restored(self._code) + "%s\\%s eval %s </dev/null %s\n" % (given, builtin, _quoted(code), without)

    def _question(self) -> str:
        return "\\printf '%%s\\n' \"$? %d\" >&%d\n" % (self._number, self._status_fd)

    def _write(self, text: str) -> None:
        self._commands.put(text.encode("utf-8", "surrogateescape"), _consumed)

    def _hear(self, data: bytes) -> None:
        """Lines of exit codes with the number of their command. A command cannot write here, but may be rude."""
        *lines, self._said = (self._said + data)[-_STATUS_LIMIT:].split(b"\n")
        for line in lines:
            words = line.split()
            expected = self._busy and not self._sweeping
            if expected and len(words) == 2 and words[1] == b"%d" % self._number and words[0].isdigit():
                self._code = int(words[0]) & 255
                self._sweep(_ROUNDS if self._pressed else 0)

    def _sweep(self, rounds: int) -> None:
        """End the cell. After an interrupt a command may be left that was not yet one when the signal came."""
        left = self._foreground() if rounds else []
        self._sweeping = bool(left)
        if not left:
            self._pressed = False
            self._end_with(self._code)
            return
        send(left, signal.SIGINT if rounds > 1 else signal.SIGKILL)
        self._machine.loop.after(_PAUSE, lambda: self._sweep(rounds - 1))

    def _foreground(self) -> List[int]:
        """What the shell would wait for: of its group, and not in the background, where SIGINT is ignored."""
        found = self._machine.killer.members(self.mark) - {self.pid}
        return [pid for pid in found if _group(pid) == self.pid and not _has(pid, b"SigIgn:")]

    def interrupt(self) -> bool:
        if not super().interrupt():
            return False
        self._pressed = True
        self._write(self._question())  # a POSIX shell that is interrupted forgets what it has read ahead
        self._insist(self._foreground(), self._number, list(_INSISTING))
        return True

    def _insist(self, hit: List[int], number: int, pauses: List[float]) -> None:
        """A process that was just being made takes SIGINT for the shell's, and zsh may miss one between two commands.

        A process that neither died of it nor handles it has not had it.
        """
        if not pauses or not (hit or self._shell == "zsh"):
            return

        def again() -> None:
            if self._busy and self._number == number:
                if hit:
                    send([pid for pid in hit if _group(pid) == self.pid and not _has(pid, b"SigCgt:")], signal.SIGINT)
                else:
                    self._signal(signal.SIGINT)
                self._insist(hit, number, pauses[1:])

        self._machine.loop.after(pauses[0], again)

    def kill(self) -> None:
        """What runs in it, while that helps; else the shell."""
        if not self.alive:
            return
        if self._busy and not self._closed:
            self._force(_ROUNDS)
        else:
            send([self.pid], signal.SIGKILL)

    def _force(self, rounds: int) -> None:
        """Kill what the cell has started, and interrupt the shell before it starts what comes next."""
        if not self.alive or not self._busy or self._timer is not None:
            return
        if rounds <= 0 or self._closed:
            send([self.pid], signal.SIGKILL)
            return

        def again() -> None:
            self._timer = None
            self._force(rounds - 1)

        def killed() -> None:
            self.interrupt()
            self._timer = self._machine.loop.after(_PAUSE, again)

        self._machine.killer.kill_since(self.mark, self._since, self.pid, killed)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            send([self.pid], signal.SIGKILL)
        super().close()
        self._commands.close()  # a shell that reads no more commands ends
        self._statuses.close()

    def _exited(self, status: int) -> None:
        self.alive = False
        self.status = status
        if self._closed:
            return
        code = exit_code(status)
        said = "exit code %d, and the shell has ended" % code
        if self.reason is not None or os.WIFSIGNALED(status):
            said = self._how_it_ended("the shell")

        def tell() -> None:
            self._end_for_good(self._verdict(code, said))

        self._statuses.settle(lambda: self._sources[-1].settle(tell))


def _restored(code: int) -> str:
    """What makes `$?` that of the last cell again; as a part of a list it passes under `set -e`."""
    return "" if code == 0 else "(exit %d) && :; " % code


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1  # gone


def _has(pid: int, signals: bytes) -> bool:
    """Whether SIGINT is in that set of signals of a process. One that is gone has every set."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            line = next(line for line in file if line.startswith(signals))
    except (OSError, StopIteration):
        return True
    return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)


def _consumed(_size: int) -> None:
    pass
