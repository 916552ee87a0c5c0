"""A running command: its output and input, its end, and its life without a client."""

from __future__ import annotations

import signal
from time import monotonic
from typing import Any, Callable, Dict, List, Optional

from ..wire.frames import STDERR, STDOUT
from . import spawn
from .arguments import Arguments
from .attendant import Attendant
from .channel import Channel, Operation
from .killing import send
from .loop import Timer
from .machine import Machine
from .outlet import Outlet
from .pipes import Sink, Source
from .reaper import exit_code
from .refusal import BUSY, Refused, invalid
from .spawn import Child

LINGER = 0.1
TIMED_OUT = 124
_KILLED = 128 + signal.SIGKILL
_END_OF_TRANSMISSION = b"\x04"


class Process(Operation):
    """One command, with the channel that its client listens on, or listened on last.

    Args:
        held: it outlives its client; what nobody reads meanwhile is kept in a ring.
        ended: told once, when the command is over.
    """

    def __init__(
        self,
        machine: Machine,
        channel: Channel,
        child: Child,
        mark: int,
        outlet: Outlet,
        held: bool,
        ended: Callable[[Process], None],
    ) -> None:
        super().__init__(channel)
        self.pid = child.pid
        self.mark = mark
        self.held = held
        self.outlet = outlet
        self.result: Optional[Dict[str, Any]] = None
        self._machine = machine
        self._ended = ended
        self._terminal = child.stdout if child.stderr is None else None
        self._attendant = None if child.attendant is None else Attendant(child.stdout, child.attendant)
        self._started = monotonic()
        self._exit_code: Optional[int] = None
        self._timed_out = False
        self._starved = False
        self._killing = False
        self._timer: Optional[Timer] = None
        self._sources: List[Source] = []
        self._stdin: Optional[Sink] = None
        machine.reaper.watch(child.pid, self._exited)
        channel.send_event(b'{"pid":%d}' % child.pid)
        self._connect(child)

    def _connect(self, child: Child) -> None:
        loop = self._machine.loop
        if child.stdin is not None:
            end_mark = b"" if self._terminal is None else _END_OF_TRANSMISSION
            self._stdin = Sink(loop, child.stdin, end_mark)
        for fd, stream in ((child.stdout, STDOUT), (child.stderr, STDERR)):
            if fd is not None:
                self._sources.append(self._source(fd, stream))

    def _source(self, fd: int, stream: int) -> Source:
        return Source(
            self._machine.loop,
            fd,
            take=lambda data: self.outlet.put(stream, data),
            room=lambda: self.outlet.room,
            ended=self._advance,
        )

    @property
    def exited(self) -> bool:
        return self._exit_code is not None

    def limit_time(self, seconds: Optional[float]) -> None:
        if seconds is not None:
            self._timer = self._machine.loop.after(seconds, self._out_of_time)

    def attach(self, channel: Channel) -> None:
        """Give a new client what nobody has read, then what comes.

        It takes the place of one that is still there: that one may be gone without our knowing yet.
        """
        self.channel.fail(Refused(BUSY, "Another client has attached to process %d." % self.pid))
        self.channel = channel
        channel.operation = self
        channel.send_event(b'{"pid":%d}' % self.pid)
        self.outlet.attach(channel)
        self.writable()

    def data(self, stream: int, payload: bytes) -> None:
        if self._stdin is None:
            self.channel.consumed(len(payload))
        elif self._attendant is None:
            self._stdin.put(payload, self.channel.consumed)
        else:
            for piece, number in self._attendant.split(payload):
                self._stdin.put(piece, self.channel.consumed)
                if number is not None:
                    self._attendant.send(number)
                    self.channel.consumed(1)

    def eof(self, stream: int) -> None:
        if self._stdin is not None:
            self._stdin.end()

    def call(self, request: Dict[str, Any]) -> None:
        arguments = Arguments(request)
        size = arguments.window_size("resize")
        if size is not None and self._terminal is not None and self._sources[0].open:
            spawn.resize(self._terminal, size)
            if self._attendant is not None:
                self._attendant.send(signal.SIGWINCH)
        if "signal" in request and self._exit_code is None:
            self.signal(signal_number(arguments), arguments.flag("tree"))

    def signal(self, number: int, tree: bool) -> None:
        """To the process itself, or to all of its tree; killing a tree leaves nothing of it."""
        if tree and number == signal.SIGKILL:
            self.kill()
        elif tree:
            send(self._machine.killer.members(self.mark), number)
        else:
            send([self.pid], number)

    def writable(self) -> None:
        self.outlet.pump()
        for source in self._sources:
            source.resume()
        self._advance()

    def close(self) -> None:
        """The client has gone: a held process goes on, another one dies with its tree."""
        if self.held:
            self.outlet.detach()
            self.channel.end({})
        else:
            self.outlet.discard()
            if self._exit_code is None:
                self.kill()
        self.writable()

    def kill(self) -> None:
        if not self._killing:
            self._killing = True
            self._machine.killer.kill_command(self.mark, self._killed)

    def _killed(self) -> None:
        self._killing = False
        self._advance()

    def _out_of_time(self) -> None:
        self._timed_out = True
        self.kill()

    def _exited(self, status: int) -> None:
        self._exit_code = TIMED_OUT if self._timed_out else exit_code(status)
        # Of a shell's command that was killed, the shell says it.
        self._starved = self._exit_code == _KILLED and self._machine.victims.out_of_memory()
        if self._timer is not None:
            self._timer.cancel()
        if self._stdin is not None:
            self._stdin.close()
        if self._attendant is not None:
            self._attendant.close()
            self._attendant = None
        if any(source.open for source in self._sources):
            self._timer = self._machine.loop.after(LINGER, self._cut)
        self._advance()

    def _cut(self) -> None:
        """Somebody else keeps the pipes open: what is in them now is all that the client gets."""
        for source in self._sources:
            source.settle(source.close)

    def _advance(self) -> None:
        """Note the end when it has come, and tell it once the client has all of the output."""
        if self.result is None and self._is_over():
            if self._timer is not None:
                self._timer.cancel()
            duration = monotonic() - self._started
            self.result = {
                "exit_code": self._exit_code,
                "timed_out": self._timed_out,
                "duration": duration,
                "out_of_memory": self._starved,
            }
            self._ended(self)
        if self.result is not None and self.outlet.empty:
            self.channel.end({**self.result, "truncated": self.outlet.truncated})

    def _is_over(self) -> bool:
        return self._exit_code is not None and not self._killing and not any(source.open for source in self._sources)


def signal_number(arguments: Arguments) -> int:
    """Raises Refused for what is no signal."""
    number = arguments.required_count("signal")
    if not 0 < number < signal.NSIG:
        raise invalid("%d is not the number of a signal." % number)
    return number
