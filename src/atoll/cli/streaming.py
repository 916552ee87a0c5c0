"""Running a command with our own standard input and output: live, and every byte as it is."""

from __future__ import annotations

import _thread
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..client.operation import Closed
from ..client.running import Gathered
from ..errors import AtollError
from ..sync.raw import RawCommand
from ..sync.sandbox import Sandbox
from ..types import Completed
from ..wire.frames import DATA, Frame
from .output import STDERR, complain, write

_PIECE = 1 << 16
TAIL = 4096
"""Bytes of the end of what a command says that are looked at for the reason of its failure."""


class Ended(NamedTuple):
    """How a command ended, and the end of what it said on either stream."""

    completed: Completed
    tail: str


def stdin_to_pass_on() -> bool:
    """Whether there is input for a command: a pipe or a file, and not the user's terminal."""
    return not os.isatty(0)


def run(
    sandbox: Sandbox,
    command: str | list[str],
    *,
    stdin: bool = False,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    timeout: Any = "default",
    all_to_stderr: bool = False,
    keep: bool = False,
) -> Ended:
    """Run a command to its end, and say if its time was over. Whatever interrupts this kills it with all its children.

    Args:
        keep: its output is not written but given, as far as the library would keep it.
    """
    running = RawCommand(sandbox, command, stdin=stdin, env=env, workdir=workdir, timeout=timeout)
    try:
        if stdin:
            # A thread, since the command may end or speak while our input is silent.
            _thread.start_new_thread(_pass_on_input, (running,))
        gathered = Gathered() if keep else None
        tail = bytearray()
        while not isinstance(item := running.read(), Completed):
            tail += item.data
            del tail[:-TAIL]
            if gathered is not None:
                gathered.take(Frame(0, DATA, item.stream, item.data))
            else:
                write(STDERR if all_to_stderr else item.stream, item.data)
    finally:
        running.close()
    completed = item if gathered is None else gathered.complete(item)
    return ended(completed, tail, running.timeout)


def ended(completed: Completed, tail: bytearray, seconds: float | None) -> Ended:
    """How a command ended that had so many seconds; said on stderr if they were over."""
    if completed.timed_out:
        complain(f"The command ran out of time after {seconds:g} s and was killed; -t gives it more.")
    return Ended(completed, tail.decode("utf-8", "replace"))


def _pass_on_input(running: RawCommand) -> None:
    try:
        while piece := _read_input():
            running.write(piece)
        running.close_stdin()
    except (AtollError, Closed):
        return  # the thread that reads meets the same end, and tells it


def _read_input() -> bytes:
    try:
        return os.read(0, _PIECE)
    except OSError as error:
        complain(f"Standard input cannot be read: {error.strerror}.")
        return b""
