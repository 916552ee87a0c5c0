"""A forked child that does one operation which could run for ever, and is killed when nobody cares."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from typing import Any, Callable, Dict, Generator, NoReturn, Tuple

from ..wire.frames import END, EVENT, Frame
from .contextprocess import close_all_but, reset_signals
from .jobs import GO_ON, WAIT, Job, Steps
from .killing import send
from .loop import IN
from .machine import Machine
from .packets import RECEIVED, Assembler, pair, split
from .refusal import INTERNAL, Refused, from_os_error, no_process_left

Emit = Callable[[Dict[str, Any]], None]
Work = Callable[[Emit], Dict[str, Any]]

_MESSAGES = (EVENT, END)


class Worker:
    """Runs `work` in a child. It gets a function that emits events, and returns the result.

    Args:
        kept: descriptors that the work needs; no others stay open in the child.
    """

    def __init__(self, machine: Machine, job: Job, work: Work, kept: Tuple[int, ...]) -> None:
        self._loop = machine.loop
        self._job = job
        self._alive = True
        machine.marks.issue()
        self._sock, theirs = pair()
        try:
            self._pid = machine.victims.fork()
        except OSError as error:
            self._sock.close()
            raise no_process_left() from error
        else:
            if self._pid == 0:
                _serve(theirs, work, kept)
        finally:
            theirs.close()
        machine.reaper.watch(self._pid, self._exited)
        self._sock.setblocking(False)

    def relay(self) -> Steps:
        """Pass on the events and the result, at the pace of the client. The child ends with this generator."""
        try:
            while True:
                frame = yield from self._receive()
                if frame.kind == END:
                    return _outcome(frame)
                while self._job.channel.room < len(frame.payload):
                    yield WAIT
                self._job.channel.send_event(frame.payload)
                yield GO_ON
        finally:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            if self._alive:
                send([self._pid], signal.SIGKILL)

    def _receive(self) -> Generator[int, None, Frame]:
        assembler = Assembler()
        while True:
            try:
                packet = self._sock.recv(RECEIVED)
            except BlockingIOError:
                self._loop.watch(self._sock.fileno(), IN, self._ready)
                yield WAIT
                continue
            if not packet:
                raise Refused(INTERNAL, "The process that did this was killed; a limit of the sandbox is reached.")
            frame = assembler.add(packet, _MESSAGES)
            if frame is not None:
                return frame

    def _ready(self, _mask: int) -> None:
        """Watched only while something is waited for: the job may be waiting for its client instead."""
        self._loop.forget(self._sock.fileno())
        self._job.wake()

    def _exited(self, _status: int) -> None:
        self._alive = False


def _outcome(frame: Frame) -> Dict[str, Any]:
    said = frame.json()
    error = said.get("error")
    if isinstance(error, dict):
        raise Refused(error["code"], error["message"], error.get("errno"), error.get("path"))
    result: Dict[str, Any] = said["ok"]
    return result


def _serve(sock: socket.socket, work: Work, kept: Tuple[int, ...]) -> NoReturn:
    """In the child. Its guest may hang up at any time, which ends it."""
    try:
        reset_signals()
        close_all_but((0, 1, 2, sock.fileno(), *kept))
        _say(sock, END, _attempt(lambda event: _say(sock, EVENT, event), work))
    except BrokenPipeError:
        pass
    finally:
        os._exit(0)


def _attempt(emit: Emit, work: Work) -> Dict[str, Any]:
    try:
        return {"ok": work(emit)}
    except Refused as refusal:
        return {"error": refusal.wire()}
    except BrokenPipeError:
        raise
    except OSError as error:
        return {"error": from_os_error(error, None).wire()}
    except Exception as error:  # noqa: BLE001  # the client is told, and the story goes to stderr
        traceback.print_exc(file=sys.stderr)
        return {"error": Refused(INTERNAL, "The guest failed: %s: %s" % (type(error).__name__, error)).wire()}


def _say(sock: socket.socket, kind: int, message: Dict[str, Any]) -> None:
    for packet in split(kind, json.dumps(message, separators=(",", ":")).encode("ascii")):
        sock.send(packet)
