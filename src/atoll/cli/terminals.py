"""The user's terminal, joined to a terminal inside a sandbox."""

from __future__ import annotations

import _thread
import os
import select
import signal
import termios
import tty
from collections.abc import Mapping

from ..client.operation import Closed
from ..errors import AtollError
from ..sync.raw import RawCommand
from ..sync.sandbox import Sandbox
from ..types import Completed
from .output import STDERR, STDOUT, write
from .streaming import tell_of_time

_PIECE = 1 << 16


def is_there() -> bool:
    """Whether there is a terminal for a command: our input and our output, and ours to read from now."""
    return os.isatty(0) and os.isatty(STDOUT) and _in_front()


def is_whole() -> bool:
    """The same, where nobody asked: standard error has to be one, too, or it would no longer go where it was sent."""
    return is_there() and os.isatty(STDERR)


def _in_front() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it is nobody's controlling terminal, and no shell of its has put us behind
        return True


def run(
    sandbox: Sandbox,
    command: str | list[str],
    *,
    env: Mapping[str, str],
    workdir: str | None,
    timeout: float | str | None = None,
) -> Completed:
    """Run a command on a terminal of its own until it ends, with every key and every change of size passed on.

    Our terminal is put back in order whatever happens, and then told if the time of the command was over.
    """
    surroundings = {"TERM": os.environ.get("TERM", "xterm"), **env}
    running = RawCommand(sandbox, command, stdin=True, pty=_size(), env=surroundings, workdir=workdir, timeout=timeout)
    keys = _Keys(running)
    try:
        keys.start()
        while not isinstance(item := running.read(), Completed):
            write(STDOUT, item.data)
    finally:
        keys.stop()
        running.close()
    tell_of_time(item, running.timeout)
    return item


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(STDOUT)
    return size.lines or 24, size.columns or 80


class _Keys:
    """A thread that passes on keys, and tells the sandbox when the window has another size.

    SIGWINCH only writes to a pipe, which the thread watches along with the keyboard: a handler that spoke to
    the sandbox itself could strike in the middle of another message to it.
    """

    def __init__(self, running: RawCommand) -> None:
        self._running = running
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stopping = False
        self._ended = _thread.allocate_lock()
        self._before = termios.tcgetattr(0)

    def start(self) -> None:
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is for the command, too
        signal.signal(signal.SIGWINCH, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._ended.acquire()
        _thread.start_new_thread(self._pass_on, ())

    def stop(self) -> None:
        """Give the terminal back. No key that is pressed from now on is lost to us."""
        signal.set_wakeup_fd(-1)
        self._stopping = True
        os.write(self._woken, b"\0")
        self._ended.acquire(timeout=1.0)
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _pass_on(self) -> None:
        try:
            while not self._stopping:
                self._step()
        except (AtollError, Closed, OSError):
            return  # the thread that reads meets the same end, and tells it
        finally:
            self._ended.release()

    def _step(self) -> None:
        poller = select.poll()
        for fd in (0, self._wake):
            poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll()}
        if self._wake in ready:
            os.read(self._wake, _PIECE)
            if not self._stopping:
                self._running.resize(*_size())
        elif 0 in ready:
            piece = os.read(0, _PIECE)
            if not piece:
                self._running.close_stdin()
                self._stopping = True
            self._running.write(piece)
