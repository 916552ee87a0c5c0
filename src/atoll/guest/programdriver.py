"""An interpreter that stays and runs a driver of ours, which speaks to the guest in packets as a Python context does.

The driver is text: it is in a file on descriptor 4. Requests come through a pipe on descriptor 5, each a
length (u32) and JSON. It answers on descriptor 3, a socket, with DATA, EVENT and END, a frame in each packet. The
first EVENT of each cell is `{"begun": true}`: from then on SIGINT is for the cell. `{"death": …}` is its last.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from time import monotonic
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..wire.frames import DATA, END, EVENT, STDERR, BadFrame, Frame
from . import packets
from .contextlink import Listener
from .contextstart import ContextSettings
from .descriptors import close_all, pipe
from .loop import IN
from .machine import Machine
from .pipes import Consumed, Sink
from .programlink import ProgramLink
from .reaper import exit_code
from .refusal import no_process_left

_LENGTH = struct.Struct("<I")
_MESSAGES = (EVENT, END)
_AT_ONCE = 64
# What those that follow the first part have of it already.
_IMPORTS = re.compile(r"^from (?:__future__|\.program\w+) import (?:\([^)]*\)|.*)\n", re.MULTILINE)
_DEATH = b'{"death":'
_WORDS = 500
_BEGUN = b'{"begun":true}'
_HERE = os.path.dirname(os.path.abspath(__file__))


def _consumed(_size: int) -> None:
    pass


def driver_text(*names: str) -> bytes:
    """A driver, read while its files can be reached: behind the wall they cannot. All of them become one."""
    parts = []
    for name in names:
        with open(os.path.join(_HERE, name), encoding="utf-8") as file:
            parts.append(file.read())
    return "\n".join([parts[0], *(_IMPORTS.sub("", part) for part in parts[1:])]).encode("utf-8")


def as_file(text: bytes) -> int:
    """In memory: it may be longer than a pipe holds, and is read more than once."""
    fd = os.memfd_create("driver", os.MFD_CLOEXEC)
    os.write(fd, text)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class DriverLink(ProgramLink):
    """Starts the interpreter when it is made.

    Args:
        argv: the interpreter, made to run what it reads from descriptor 4.
        driver: that text.
        options: what the driver is told with each cell, beside the code.
        env: variables for the interpreter, on top of the context's.

    Raises:
        Refused: it cannot be started.
    """

    def __init__(
        self,
        machine: Machine,
        listener: Listener,
        settings: ContextSettings,
        argv: Sequence[str],
        driver: bytes,
        options: Dict[str, Any],
        env: Optional[Dict[str, str]] = None,
    ) -> None:
        super().__init__(machine, listener, settings)
        self._options = options
        self._what = os.path.basename(argv[0])
        self._begun = False
        self._death: Optional[str] = None
        self._assembler = packets.Assembler()
        self._sock, self._requests = self._launch(argv, driver, env or {})
        if self.pid:
            machine.reaper.watch(self.pid, self._exited)
        self._watch()

    def _launch(self, argv: Sequence[str], driver: bytes, env: Dict[str, str]) -> Tuple[socket.socket, Sink]:
        made: List[int] = []
        ours, theirs = packets.pair()
        try:
            ours.setblocking(False)
            text = as_file(driver)
            made.append(text)
            requests, requests_end = pipe(made)
            stdout, stderr = self._outputs(made)
            null = self._machine.devnull
            descriptors = [(null, 0), (stdout, 1), (stderr, 2), (theirs.fileno(), 3), (text, 4), (requests, 5)]
            self.pid = self._start(argv, descriptors, env)
            made.remove(requests_end)
        except BaseException as error:
            ours.close()
            for source in self._sources:
                source.close()
            if isinstance(error, OSError):
                raise no_process_left() from error
            raise
        finally:
            theirs.close()
            close_all(made)
        return ours, Sink(self._machine.loop, requests_end)

    def _run(self, request: Dict[str, Any]) -> None:
        self._begun = False
        self._say({**request, **self._options})

    def _say(self, message: Dict[str, Any], data: bytes = b"", consumed: Consumed = _consumed) -> None:
        payload = json.dumps(message).encode("ascii")
        self._requests.put(_LENGTH.pack(len(payload)) + payload + data, consumed)

    def interrupt(self) -> bool:
        return self._begun and super().interrupt()

    def resume(self) -> None:
        self._watch()
        super().resume()

    def close(self) -> None:
        if not self._closed:
            self._machine.loop.forget(self._sock.fileno())
            self._sock.close()
            self._requests.close()  # at which the driver ends
        super().close()

    def _watch(self) -> None:
        """Listen to the driver as far as there is room."""
        if not self.alive or self._closed:
            return
        if self._listener.room() > 0:
            self._machine.loop.watch(self._sock.fileno(), IN, lambda _mask: self._read(_AT_ONCE))
        else:
            self._machine.loop.forget(self._sock.fileno())

    def _read(self, count: int) -> None:
        for _ in range(count):
            if self.alive and self._listener.room() <= 0:
                break
            try:
                packet = self._sock.recv(packets.RECEIVED)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            if not packet or not self._hear(packet):
                self._machine.loop.forget(self._sock.fileno())
                self._ended_early()
                return
            if self._closed:
                return
        self._watch()

    def _hear(self, packet: bytes) -> bool:
        """False when it makes no sense: code of the cell has got hold of the socket, so the context ends."""
        try:
            frame = self._assembler.add(packet, _MESSAGES)
            if frame is not None:
                self._take(frame)
        except BadFrame:
            self.kill()
            return False
        return True

    def _take(self, frame: Frame) -> None:
        if frame.kind == DATA:
            if frame.stream == STDERR:
                self._remember(frame.payload)
            self._listener.frame(frame)
        elif frame.kind == EVENT and frame.payload == _BEGUN:
            self._begun = self._busy
            self.begun_at = monotonic()
        elif frame.kind == EVENT and frame.payload.startswith(_DEATH):
            self._death = str(frame.json().get("death"))[:_WORDS]
        elif frame.kind == EVENT:
            self._listener.frame(frame)
        elif frame.kind == END:
            self._begun = False
            self._end(frame.json())

    def _ended_early(self) -> None:
        """The socket has ended. That its process has, too, is told otherwise."""

    def _exited(self, status: int) -> None:
        self.alive = False
        self.status = status
        if self._closed:
            return
        self._read(1 << 16)
        self._machine.loop.forget(self._sock.fileno())
        self._sources[-1].settle(lambda: self._tell_exit(status))

    def _tell_exit(self, status: int) -> None:
        value = "%s; the variables of this context are lost" % (self._death or self._how_it_ended(self._what))
        error = {"name": "ContextDied", "value": value, "traceback": self._last_words() + "ContextDied: %s\n" % value}
        self._end_for_good({"exit_code": None if self._death else exit_code(status), "error": error})
