"""A context in another language, seen from the guest: what links to shells, drivers and single programs share."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..wire.frames import END, STDERR, STDOUT, Frame
from . import spawn
from .arguments import encoded
from .contextlink import Listener
from .contextstart import ContextSettings
from .descriptors import close_all, pipe
from .killing import send
from .loop import Callback, nothing
from .machine import Machine
from .pipes import Source
from .proc import TICKS
from .reaper import exit_code
from .refusal import UNSUPPORTED, Refused
from .spawn import CannotStart, Command

_ABOVE = 100
"""Our ends are moved to descriptors from here on, so that none is a number that the program is to have."""

_TAIL = 8192
_TAIL_LINES = 20


class ProgramLink:
    """What `context.Context` asks of a link, for a program that is not ours.

    Raises:
        Refused: the program cannot be started.
    """

    can_be_dressed = False
    costly = False
    begun_at = 0.0

    def __init__(self, machine: Machine, listener: Listener, settings: ContextSettings) -> None:
        self.mark = machine.marks.issue()
        self.alive = True
        self.reason: Optional[str] = None
        self.status = 0
        self.pid = 0
        self._machine = machine
        self._listener = listener
        self._settings = settings
        self._busy = False
        self._closed = False
        self._since = 0
        self._tail = b""
        self._sources: List[Source] = []
        self._held: Optional[List[Callback]] = None

    def request(self, payload: bytes) -> None:
        """Hand it a cell. What it cannot do is the cell's error."""
        self._busy = True
        self._tail = b""
        self._since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)
        request = json.loads(payload)
        if request.get("do", "code") != "code":
            message = "Only a Python context has variables that can be reached; this one runs %s." % (
                self._settings.language
            )
            self._end_soon({"error": Refused(UNSUPPORTED, message).wire()})
            return
        try:
            self._run(request)
        except Refused as refusal:
            self._refuse(refusal)

    def _run(self, request: Dict[str, Any]) -> None:
        """Begin a cell. Raises Refused."""
        raise NotImplementedError

    def interrupt(self) -> bool:
        """SIGINT to what runs; False when nothing does."""
        # A program may be gone before its cell is: 0 is no group but our own.
        if not self.alive or not self._busy or not self.pid:
            return False
        self._signal(signal.SIGINT)
        return True

    def kill(self) -> None:
        if self.alive and self.pid:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """To the whole group, as a terminal does."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            send([self.pid], number)  # it has left its group, or all are gone but it

    def call(self, payload: bytes) -> None:
        """Nothing that a client could say to a running cell concerns another language."""

    def feed(self, payload: bytes, taken: Callback) -> None:
        """Input that nobody takes."""
        taken()

    def resume(self) -> None:
        """There may be room again."""
        for source in self._sources:
            source.resume()

    def settle(self, done: Callback) -> None:
        """Call back when all that was written by now has been taken."""
        if self._held is not None:
            self._held.append(done)
            return
        waiting = list(self._sources)

        def next_one() -> None:
            if waiting:
                waiting.pop().settle(next_one)
            else:
                done()

        next_one()

    def close(self) -> None:
        """Hear nothing more of it; its end is not told either."""
        self._closed = True
        self._busy = False
        for source in self._sources:
            source.close()

    # For those that are made of this.

    def _start(
        self,
        argv: Sequence[str],
        descriptors: Sequence[Tuple[int, int]],
        env: Dict[str, str],
        cwd: Optional[str] = None,
    ) -> int:
        """Start a program of this context, with `env` on top of its environment; its pid.

        It starts in the context's directory, or in `cwd`, as processes name it. Raises Refused.
        """
        settings = self._settings
        variables = {**self._machine.config.environment(), **settings.env, **env}
        encoded_env = {encoded(name, "A name"): encoded(value, "A variable") for name, value in variables.items()}
        command = Command([encoded(word, "An argument") for word in argv], encoded_env)
        lifted: List[int] = []
        try:
            for fd, _ in descriptors:
                lifted.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE))
            if cwd is None:
                self._machine.enter(settings.cwd)
            else:
                os.chdir(cwd)
            with self._machine.victims:
                return spawn.spawn_with(command, [(ours, its) for ours, (_, its) in zip(lifted, descriptors)])
        except CannotStart as failure:
            raise Refused(UNSUPPORTED, "%s cannot be started: %s." % (settings.language, failure.reason)) from failure
        finally:
            close_all(lifted)

    def _outputs(self, made: List[int]) -> Tuple[int, int]:
        """The writing ends of two pipes, which are read as output."""
        ends = []
        for stream in (STDOUT, STDERR):
            reading, writing = pipe(made)
            made.remove(reading)
            ends.append(writing)
            self._sources.append(self._source(reading, stream))
        return ends[0], ends[1]

    def _source(self, fd: int, stream: int) -> Source:
        def take(data: bytes) -> None:
            self._heard(stream, data)

        return Source(self._machine.loop, fd, take=take, room=self._listener.room, ended=nothing)

    def _heard(self, stream: int, data: bytes) -> None:
        if stream == STDERR:
            self._remember(data)
        self._listener.output(stream, data)

    def _remember(self, said: bytes) -> None:
        self._tail = (self._tail + said[-_TAIL:])[-_TAIL:]

    def _end(self, answer: Dict[str, Any]) -> None:
        """Tell the end of the cell, once."""
        if self._busy:
            self._busy = False
            self._listener.frame(Frame(0, END, 0, json.dumps(answer).encode("ascii")))

    def _end_for_good(self, answer: Dict[str, Any]) -> None:
        """Tell the end of the cell, if one ran, and that of the program, before anybody acts on the first."""
        if self._closed:
            return
        held: List[Callback] = []
        self._held = held
        self._end(answer)
        self._held = None
        self._listener.exited()
        for done in held:
            self.settle(done)

    def _end_with(self, code: int, value: Optional[str] = None, name: str = "ExitCode") -> None:
        """End a cell with an exit code. The last that came on stderr goes along, so it is taken first."""

        if code and self._sources:
            self._sources[-1].settle(lambda: self._end(self._verdict(code, value, name)))
        else:
            self._end(self._verdict(code, value, name))

    def _verdict(self, code: int, value: Optional[str] = None, name: str = "ExitCode") -> Dict[str, Any]:
        text = value or "exit code %d" % code
        error = {"name": name, "value": text, "traceback": self._last_words() or "%s: %s\n" % (name, text)}
        return {"exit_code": code, "error": error if code else None}

    def _how_it_ended(self, what: str) -> str:
        """In words, for a program that was to stay."""
        if self.reason is not None:
            return self.reason
        if os.WIFSIGNALED(self.status):
            return "signal %d ended %s" % (os.WTERMSIG(self.status), what)
        return "%s exited with %d" % (what, exit_code(self.status))

    def _last_words(self) -> str:
        lines = self._tail.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(lines[-_TAIL_LINES:])

    def _refuse(self, refusal: Refused) -> None:
        """What this sandbox cannot do is no error of the cell; all else is, named as the client's own error for it."""
        if refusal.code == UNSUPPORTED:
            self._end_soon({"refused": refusal.wire()})
            return
        name = refusal.code.title().replace("_", "")
        error = {"name": name, "value": refusal.message, "traceback": "%s: %s\n" % (name, refusal.message)}
        self._end_soon({"exit_code": None, "error": error})

    def _end_soon(self, answer: Dict[str, Any]) -> None:
        """Not before whoever has made the request knows that it was made."""
        self._machine.loop.soon(lambda: self._end(answer))
