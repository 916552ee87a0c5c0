"""The server on standard input and output: one message a line.

Threads take turns at reading. Whoever reads a call runs it, and lets another thread read on as soon as it turns out
that the call takes longer: nothing is handed over between reading a call and answering it, and nobody is woken up for a
short one.
"""

from __future__ import annotations

import os
import select
import signal
from _thread import allocate_lock, start_new_thread
from time import monotonic
from typing import Any

from .calls import Call
from .encoding import error_line
from .messages import MAX_BATCH, MAX_MESSAGE, Unreadable, checked, parsed
from .revisions import INVALID_REQUEST, OVERLOADED, PARSE_ERROR, has_batches
from .server import MAX_RUNNING, Conversation, Server, report

_CHUNK = 1 << 16
_FAREWELL = 1.5
"""Seconds for calls to end when the client has gone; it kills us after two."""


def serve(server: Server) -> int:
    """Serve until standard input ends or SIGTERM comes; the exit code."""
    source, target = _private_streams()
    stdio = _Stdio(server, source, target)
    stdio.start()
    stdio.wait()
    return 0


def _private_streams() -> tuple[int, int]:
    """Descriptors that only we have: nothing that prints or reads by accident may break into the conversation."""
    source, target = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, target


class Lines:
    """Lines of a descriptor. One that is too long is dropped as it comes, and told of as None."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._whole: list[bytes | None] = []
        self._open: list[bytes] = []
        self._size = 0
        self._dropping = False

    def next(self) -> bytes | None:
        """The next line. Raises EOFError after the last."""
        while not self._whole:
            try:
                chunk = os.read(self._fd, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._feed(chunk)
        return self._whole.pop()

    def _feed(self, chunk: bytes) -> None:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if self._dropping:
                self._dropping = False
                self._whole.append(None)
            elif self._size + len(end) > MAX_MESSAGE:
                self._whole.append(None)
            else:
                self._whole.append(b"".join([*self._open, end]) if self._open else end)
            self._open, self._size = [], 0
        self._whole.reverse()
        if not self._dropping:
            self._open.append(rest)
            self._size += len(rest)
            if self._size > MAX_MESSAGE:
                self._open, self._size, self._dropping = [], 0, True


class _Stdio:
    def __init__(self, server: Server, source: int, target: int) -> None:
        self._server = server
        self._lines = Lines(source)
        self._target = target
        self._talk = Conversation()
        self._writing = allocate_lock()
        self._reading = allocate_lock()
        self._counting = allocate_lock()
        self._waiting = 0
        self._busy = 0
        self._over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def start(self) -> None:
        start_new_thread(self._work, ())

    def wait(self) -> None:
        """Until the client has gone or a signal comes; then end what runs. Only the main thread hears signals."""
        heard, struck = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(struck, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(heard, select.POLLIN)
        poller.register(self._over, select.POLLIN)
        poller.poll()
        self._talk.cancel_all()
        until = monotonic() + _FAREWELL
        poller.unregister(heard)
        poller.unregister(self._over)
        while self._talk.running and monotonic() < until:
            poller.poll(5)

    def _send(self, line: bytes) -> None:
        with self._writing:
            rest = memoryview(line)
            try:
                while rest:
                    try:
                        rest = rest[os.write(self._target, rest) :]
                    except BlockingIOError:
                        _until_writable(self._target)
            except OSError:
                os.eventfd_write(self._over, 1)  # nobody reads any more

    def _work(self) -> None:
        """What every thread does: read, and let another one read while a call runs."""
        try:
            while True:
                with self._counting:
                    self._waiting += 1
                self._reading.acquire()
                with self._counting:
                    self._waiting -= 1
                leading = True
                while leading:
                    leading = self._turn()
        except EOFError:
            self._reading.release()
            os.eventfd_write(self._over, 1)
        except BaseException as error:
            report(error)
            os.eventfd_write(self._over, 1)
            raise

    def _turn(self) -> bool:
        """Take one line; whether this thread still is the one that reads."""
        line = self._lines.next()
        if line is None:
            self._send(error_line(None, PARSE_ERROR, f"The message has more than {MAX_MESSAGE} bytes."))
            return True
        if not line or line.isspace():
            return True
        try:
            message = parsed(line)
            if isinstance(message, list):
                return self._batch(message)
            return self._take(checked(message))
        except Unreadable as error:
            self._send(error_line(error.id, error.code, error.message))
            return True

    def _take(self, message: dict[str, Any]) -> bool:
        if "method" not in message:
            return True  # an answer, and we never ask
        if "id" not in message:
            self._server.notice(self._talk, message)
            return True
        pace = self._server.pace(message)
        if pace == "at once":
            self._answer(message, Call())
            return True
        if not self._count_in():
            self._send(error_line(message["id"], OVERLOADED, f"{MAX_RUNNING} calls run already; try again later."))
            return True
        call = Call(linger=self._hand_over)
        if pace == "later":
            call.take_time()
        try:
            self._answer(message, call)
        finally:
            with self._counting:
                self._busy -= 1
        return call.linger is not None

    def _answer(self, message: dict[str, Any], call: Call) -> None:
        line = self._server.answer(self._talk, message, call, self._send)
        if line is not None:
            self._send(line)

    def _count_in(self) -> bool:
        """Whether one more call may run; it counts from now on."""
        with self._counting:
            if self._busy >= MAX_RUNNING:
                return False
            self._busy += 1
        return True

    def _hand_over(self) -> None:
        """Let another thread read."""
        with self._counting:
            alone = not self._waiting
        if alone:
            start_new_thread(self._work, ())
        self._reading.release()

    def _batch(self, messages: list[Any]) -> bool:
        """Several messages at once, as old revisions have them; their answers come in one line."""
        if not (messages and has_batches(self._talk.revision or "")):
            raise Unreadable(INVALID_REQUEST, "This revision has no batches; send one message a line.")
        if len(messages) > MAX_BATCH:
            raise Unreadable(INVALID_REQUEST, f"A batch has at most {MAX_BATCH} messages.")
        if not self._count_in():
            raise Unreadable(OVERLOADED, f"{MAX_RUNNING} calls run already; try again later.")
        self._hand_over()
        try:
            answers = [answer for message in messages if (answer := self._one_of_many(message)) is not None]
            if answers:
                self._send(b"[" + b",".join(answer.rstrip(b"\n") for answer in answers) + b"]\n")
        finally:
            with self._counting:
                self._busy -= 1
        return False

    def _one_of_many(self, message: Any) -> bytes | None:
        try:
            message = checked(message)
        except Unreadable as error:
            return error_line(error.id, error.code, error.message)
        if "method" not in message:
            return None
        if "id" not in message:
            self._server.notice(self._talk, message)
            return None
        return self._server.answer(self._talk, message, Call(), self._send)


def _until_writable(fd: int) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    poller.poll()
