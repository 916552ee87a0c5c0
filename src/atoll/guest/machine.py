"""What the operations of one guest share."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, NoReturn, Optional

from .config import Config
from .killing import Killer
from .loop import Loop
from .marks import Marks
from .paths import Root
from .reaper import Reaper
from .refusal import from_os_error
from .thrift import Thrift
from .victims import Victims


class Machine:
    """
    Attributes:
        spare: gives a context that was made ahead, called with this and the settings; or None.
        become: what a fork becomes instead of a plain Python process; called as `contextprocess.become_context` is.
            Where there is one, the guest may be outside of the wall: it starts nothing else.
    """

    def __init__(self, config: Config, score: Optional[int] = None, kills: Optional[int] = None) -> None:
        self.config = config
        self.loop = Loop()
        self.reaper = Reaper()
        self.marks = Marks()
        self.killer = Killer(self.loop, self.marks, self.reaper.reap)
        self.victims = Victims(score, kills)
        self.thrift = Thrift(self.loop, self.killer, self.victims, config.memory) if config.memory else None
        self.spare: Optional[Callable[..., Any]] = None
        self.become: Optional[Callable[..., NoReturn]] = None
        self.nest: Any = None
        self.root = Root(config.root, config.workdir, config.root_inside)
        self.devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def enter(self, path: str) -> None:
        """Go to a directory: what is started next starts there. Nothing in the guest depends on where it is.

        Raises:
            Refused: it is not there, or closed to us.
        """
        fd = self.root.open(path, os.O_PATH | os.O_DIRECTORY)
        try:
            os.fchdir(fd)
        except OSError as error:
            raise from_os_error(error, self.root.absolute(path)) from error
        finally:
            os.close(fd)


def _ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


def undo_inherited_signals() -> None:
    """Commands inherit what is blocked or ignored, so the guest starts from a clean slate."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in range(1, signal.NSIG):
        try:
            if _ignored(number) and number not in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # not a signal of this kernel, or one that cannot be handled
