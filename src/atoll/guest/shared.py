"""A byte of memory that a context shares with its guest, which sees there whether something can be interrupted.

Code of a cell can write to it too. It then deceives its guest about itself and nobody else.
"""

from __future__ import annotations

from mmap import PAGESIZE, mmap

RUNNING = 0


class Shared:
    """Made by the guest before it forks the context."""

    def __init__(self) -> None:
        self.page = mmap(-1, PAGESIZE)

    @property
    def running(self) -> bool:
        """Whether there is something to interrupt."""
        return self.page[RUNNING] != 0

    @running.setter
    def running(self, value: bool) -> None:
        self.page[RUNNING] = value
