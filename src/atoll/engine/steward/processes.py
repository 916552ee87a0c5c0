"""A guest that is a process of this machine, and what it has started: no wall, or one made by the command itself."""

from __future__ import annotations

import os
import signal
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from .. import holders, messages
from . import tree
from .wall import FILES, StartFailed, Wall


class TreeWall(Wall):
    """Everything behind it is a descendant of the steward."""

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        super().__init__(box, job)
        tree.adopt_orphans()

    def end(self) -> None:
        tree.kill_all(os.getpid())

    def pause(self) -> None:
        tree.signal_all(os.getpid(), signal.SIGSTOP)

    def resume(self) -> None:
        tree.signal_all(os.getpid(), signal.SIGCONT)

    def writers(self) -> list[holders.Holder]:
        return holders.writers(tree.descendants(os.getpid()), f"{self.box}/{FILES}")

    def usage(self) -> dict[str, Any]:
        return {"processes": len(tree.descendants(os.getpid()))}


class ProcessWall(TreeWall):
    """The guest is a program that the steward starts."""

    @abstractmethod
    def command(self, control: int) -> Sequence[str]:
        """What to start; it inherits the descriptor `control`."""

    def start(self) -> socket.socket:
        ours, theirs = messages.pair()
        with theirs:
            self.guest = self.spawn(self.command(theirs.fileno()), (theirs.fileno(),))
        return ours

    def spawn(self, command: Sequence[str], inherited: Sequence[int]) -> int:
        """Start a program with nothing of the steward's but some descriptors. Raises StartFailed."""
        for fd in inherited:
            os.set_inheritable(fd, True)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
        try:
            return os.posix_spawnp(command[0], list(command), self.environment(), file_actions=actions)
        except OSError as error:
            raise StartFailed(f"{command[0]} cannot be started: {error.strerror}.", "wall_unavailable") from error
        finally:
            os.close(null)
            for fd in inherited:
                os.set_inheritable(fd, False)

    def environment(self) -> dict[str, str]:
        """Of the program that is started; the guest's own comes with its configuration."""
        return {"PATH": os.defpath}
