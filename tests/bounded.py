"""Run a command that comes to an end, and that leaves nothing behind: `bounded.py SECONDS COMMAND...`.

The exit code is the command's, or 124 when its time is over. The command writes to a file, which is shown as it
grows: a pipe would stay open for as long as anything that it has started lives. What outlives it, because a test was
killed perhaps, becomes a child of this process, and is killed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time

OVER = 124
_SUBREAPER = 36
# How long what outlives the command may take to end by itself: an engine takes its mounts and networks along.
_PATIENCE = 10.0
_KILLING = 20.0
# A shell's background job ignores SIGINT, and so would all that the tests mean to interrupt.
_DEFAULT = [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD]


class Output:
    """What a command writes, shown as it grows."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as this process is there
        self._at = 0

    def show(self) -> None:
        while data := os.pread(self.file.fileno(), 1 << 16, self._at):
            self._at += len(data)
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Family:
    """A command, and everything that it has ever started."""

    def __init__(self, command: list[str], output: int) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        null = os.open(os.devnull, os.O_RDONLY)
        self._first = os.posix_spawn(
            shutil.which(command[0]) or command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), *((os.POSIX_SPAWN_DUP2, output, fd) for fd in (1, 2))],
            setsid=True,
            setsigdef=_DEFAULT,
            setsigmask=[],
        )
        self.exit_code: int | None = None

    def wait(self, seconds: float) -> bool:
        """Reap those that have ended, for a while or until one ends; whether any is left."""
        signal.sigtimedwait([signal.SIGCHLD], seconds)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._first:
                    self.exit_code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return False
        return True

    def kill(self) -> None:
        """Kill all, until none is left, or only those that even this does not end."""
        until = time.monotonic() + _KILLING
        while self.wait(0.05) and time.monotonic() < until:
            for pid in _below(os.getpid()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _below(top: int) -> list[int]:
    """The processes that descend from one."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = [top]
    for parent in found:
        found += [pid for pid, its in parents.items() if its == parent]
    return found[1:]


def _end(number: int, _: object) -> None:
    sys.exit(f"The run was ended by signal {number}.")


def main(seconds: float, command: list[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    output = Output()
    family = Family(command, output.file.fileno())
    until = time.monotonic() + seconds
    try:
        while family.exit_code is None and time.monotonic() < until:
            family.wait(0.5)
            output.show()
        code = family.exit_code
        if code is not None:
            until = time.monotonic() + _PATIENCE
            while family.wait(0.1) and time.monotonic() < until:
                pass
    finally:
        family.kill()
        output.show()
    if code is None:
        sys.stdout.write(f"\nThe run was ended: it took more than {seconds:g} seconds.\n")
        return OVER
    return code % 256


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
