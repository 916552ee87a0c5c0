"""Running a command with our own standard input and output: live, and every byte as it is."""

from __future__ import annotations

import _thread
import os
from collections.abc import Mapping
from typing import Any

from ..client.operation import Closed
from ..client.running import Gathered
from ..errors import AtollError
from ..sync.raw import RawCommand
from ..sync.sandbox import Sandbox
from ..types import Completed
from ..wire.frames import DATA, Frame
from .output import STDERR, complain, write

_PIECE = 1 << 16


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
) -> Completed:
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
        while not isinstance(item := running.read(), Completed):
            if gathered is not None:
                gathered.take(Frame(0, DATA, item.stream, item.data))
            else:
                write(STDERR if all_to_stderr else item.stream, item.data)
    finally:
        running.close()
    tell_of_time(item, running.timeout)
    return item if gathered is None else gathered.complete(item)


def tell_of_time(completed: Completed, seconds: float | None) -> None:
    """Say on stderr that the time of a command is over, if it is, and what helps; it had so many seconds."""
    if completed.timed_out:
        complain(f"The command ran out of time after {seconds:g} s and was killed. {completed.hint or ''}".rstrip())


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
