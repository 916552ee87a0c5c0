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
from .output import STDOUT, write

_PIECE = 1 << 16


def run(sandbox: Sandbox, command: list[str], *, env: Mapping[str, str], workdir: str | None) -> Completed:
    """Run a command on a terminal of its own until it ends, with every key and every change of size passed on.

    Our terminal is put back in order whatever happens.
    """
    running = RawCommand(sandbox, command, stdin=True, pty=_size(), env=env, workdir=workdir, timeout=None)
    keys = _Keys(running)
    try:
        keys.start()
        while not isinstance(item := running.read(), Completed):
            write(STDOUT, item.data)
    finally:
        keys.stop()
        running.close()
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
        tty.setraw(0)
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
