"""The signals of a terminal, where the kernel sends none: gVisor's of 2022 takes ^C for a character like any other.

Only who is in the session of a terminal can ask which processes are in its foreground. So a process of ours is there,
beside the command: it is told a signal, and passes it on to these. It ends with the pipe that it is told by, which the
guest closes when the command has ended.
"""

from __future__ import annotations

import os
import signal
import termios
from typing import List, NoReturn, Optional, Tuple

_KEYS = ((termios.VINTR, signal.SIGINT), (termios.VQUIT, signal.SIGQUIT), (termios.VSUSP, signal.SIGTSTP))
_LOCAL_FLAGS, _CONTROLS = 3, 6
_probed: List[bool] = []


def needed() -> bool:
    """Whether this kernel's terminals send no signals. Found out once, on a terminal that nobody uses."""
    if not _probed:
        master, slave = os.openpty()
        try:
            modes = termios.tcgetattr(slave)
            modes[_LOCAL_FLAGS] = (modes[_LOCAL_FLAGS] | termios.ISIG) & ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(slave, termios.TCSANOW, modes)
            os.write(master, b"\x03x")
            _probed.append(os.read(slave, 2) == b"\x03x")
        finally:
            os.close(master)
            os.close(slave)
    return _probed[0]


def attend(told: int, terminal: int) -> None:
    """In the child that is to be the command, in its session and with its terminal: leave an attendant there."""
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            _serve(told, terminal)
        os._exit(0)  # so that the attendant is the guest's child, and nothing that the command may wait for
    os.waitpid(middle, 0)


def _serve(told: int, terminal: int) -> NoReturn:
    try:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.setpgid(0, 0)
        # Not /dev/tty, which such a kernel may not have either.
        for fd, place in ((os.dup(told), 0), (os.dup(terminal), 1)):
            os.dup2(fd, place)
        os.closerange(2, 1 << 16)
        while True:
            order = os.read(0, 1)
            if not order:
                break
            _pass_on(1, order[0])
    finally:
        os._exit(0)


def _pass_on(terminal: int, number: int) -> None:
    try:
        os.killpg(os.tcgetpgrp(terminal), number)
    except OSError:
        pass  # nobody is there any more


class Attendant:
    """The guest's end of one."""

    def __init__(self, terminal: int, tell: int) -> None:
        self._terminal = terminal
        self._tell = tell

    def split(self, data: bytes) -> List[Tuple[bytes, Optional[int]]]:
        """Input in pieces, each with the signal that the key after it stands for."""
        try:
            modes = termios.tcgetattr(self._terminal)
        except (OSError, termios.error):
            return [(data, None)]
        if not modes[_LOCAL_FLAGS] & termios.ISIG:
            return [(data, None)]
        keys = {modes[_CONTROLS][key]: number for key, number in _KEYS if modes[_CONTROLS][key] != b"\0"}
        pieces: List[Tuple[bytes, Optional[int]]] = []
        begin = 0
        for position in range(len(data)):
            number = keys.get(data[position : position + 1])
            if number is not None:
                pieces.append((data[begin:position], number))
                begin = position + 1
        if begin < len(data) or not pieces:
            pieces.append((data[begin:], None))
        return pieces

    def send(self, number: int) -> None:
        """To those in the foreground."""
        try:
            os.write(self._tell, bytes([number]))
        except OSError:
            pass  # it has ended, or does not keep up

    def close(self) -> None:
        os.close(self._tell)
