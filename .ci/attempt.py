"""One pass of the tests: `attempt.py SECONDS LOG COMMAND...`. The exit code is the command's, or 124 at the time limit.

It comes to an end whatever the tests do. They write to the file LOG, which is shown as it grows: a pipe would stay open
for as long as anything that they have started lives. All that they have started, and that outlives them, becomes a
child of this process, and is killed, so that the next pass begins as the first one did.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import sys
import time

OVER = 124
_SUBREAPER = 36
_DESCENDANTS_END = 10.0
"""How long what the tests have started may take to end by itself: an engine takes its mounts and networks along."""

_DEFAULT = [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD]


class Log:
    """What a command writes, shown as it grows."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._at = 0

    def show(self) -> None:
        while data := os.pread(self.fd, 1 << 16, self._at):
            self._at += len(data)
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Family:
    """The command, and everything that it has ever started."""

    def __init__(self, command: list[str], output: int) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        null = os.open(os.devnull, os.O_RDONLY)
        # A shell's background job ignores SIGINT, and so would all that the tests mean to interrupt.
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
        """Bury the dead, for a while or until somebody dies; whether there is anybody left."""
        signal.sigtimedwait([signal.SIGCHLD], seconds)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._first:
                    self.exit_code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return False
        return True

    def kill(self) -> None:
        """Until nobody is left, or only those whom even this does not end."""
        until = time.monotonic() + 20
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


def main(seconds: float, path: str, command: list[str]) -> int:
    """Run it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(
            number, lambda number, _: sys.exit(f"This pass was ended by signal {number}, sent to its keeper.")
        )
    log = Log(path)
    family = Family(command, log.fd)
    until = time.monotonic() + seconds
    try:
        while family.exit_code is None and time.monotonic() < until:
            family.wait(0.5)
            log.show()
        code = family.exit_code
        if code is None:
            os.write(log.fd, f"\nThis pass was ended: it took more than {seconds:g} seconds.\n".encode())
        else:
            if code < 0:
                os.write(log.fd, f"\nThis pass was ended by signal {-code}, which nobody here has sent.\n".encode())
            until = time.monotonic() + _DESCENDANTS_END
            while family.wait(0.1) and time.monotonic() < until:
                pass
    finally:
        family.kill()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(log.fd, f"processor time: {used.ru_utime:.0f} s user, {used.ru_stime:.0f} s system\n".encode())
        log.show()
    return OVER if code is None else code % 256


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
