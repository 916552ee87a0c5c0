"""A program: starts an MCP server, and ends all that it has started, also what has left its group and its parent.

Run as `python -I -S mcplaunch.py FD COMMAND ...`, with a file descriptor to hear on. Whoever loses its parent beneath
this process becomes its child, so nothing gets lost. When the other end of FD is gone, all is killed: a server does not
outlive who started it. It imports as little as it can, as each server waits for it.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time

# What is heard: leave when the server has ended by itself; and kill all of it now.
GO = b"g"
KILL = b"k"

_PR_SET_CHILD_SUBREAPER = 36
_SIGINT, _SIGQUIT, _SIGHUP, _SIGPIPE, _SIGTERM, _SIGCHLD, _SIGXFSZ = 2, 3, 1, 13, 15, 17, 25
_SIGKILL = 9
_DEFAULT, _IGNORE = 0, 1
_MEANT_FOR_THE_SERVER = (_SIGINT, _SIGQUIT, _SIGHUP, _SIGTERM)
_LONGEST_KILLING = 1.5
_PAUSE = 0.002
_WITHOUT_PIDFD = 50  # milliseconds


def main(ear: int, command: list[str]) -> None:
    kernel = ctypes.CDLL(None, use_errno=True)
    kernel.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(ear, False)
    for number in _MEANT_FOR_THE_SERVER:  # they go to the whole group, of which this process is a part
        _handle(kernel, number, _IGNORE)
    # The kernel buries what dies.
    _handle(kernel, _SIGCHLD, _IGNORE)
    server = os.fork()
    if server == 0:
        _become(kernel, command)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    _wait(ear, server)
    # From here on the dead keep their numbers until they are waited for, so that no stranger is killed.
    _handle(kernel, _SIGCHLD, _DEFAULT)
    _kill_all()


def _handle(kernel: ctypes.CDLL, number: int, how: int) -> None:
    # The module `signal` takes half as long to import as Python to start.
    kernel.signal(number, ctypes.c_void_p(how))


def _become(kernel: ctypes.CDLL, command: list[str]) -> None:
    """Python ignores two signals, too, and whoever is ignored stays so in the program that follows."""
    for number in (*_MEANT_FOR_THE_SERVER, _SIGCHLD, _SIGPIPE, _SIGXFSZ):
        _handle(kernel, number, _DEFAULT)
    try:
        os.execvp(command[0], command)  # noqa: S606 - what the user has configured
    except OSError as error:
        os.write(2, f"it cannot be started: {error.strerror}: {command[0]}\n".encode())
    finally:
        os._exit(127)


def _wait(ear: int, server: int) -> None:
    """Until all is to be killed."""
    poll = select.poll()
    poll.register(ear, select.POLLIN)
    try:
        ended = os.pidfd_open(server)
        poll.register(ended, select.POLLIN)
    except OSError:
        ended = -1
    going = gone = False
    while not (going and gone):
        ready = [fd for fd, _ in poll.poll(None if ended >= 0 or gone else _WITHOUT_PIDFD)]
        if ended in ready:
            poll.unregister(ended)
            gone = True
        elif ended < 0:
            gone = server not in _children()
        if ear in ready:
            heard = os.read(ear, 16)
            if not heard or KILL in heard:
                return
            going = True


def _kill_all() -> None:
    until = time.monotonic() + _LONGEST_KILLING
    while time.monotonic() < until:
        for child in _children():
            try:
                os.kill(child, _SIGKILL)
            except OSError:
                pass  # it runs as somebody else
        try:
            # Those beneath them are children of this process then.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_PAUSE)


def _children() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = file.read().rpartition(b")")[2].split()[1]
            except OSError:
                continue  # it has ended
            if int(parent) == os.getpid():
                found.append(int(name))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
