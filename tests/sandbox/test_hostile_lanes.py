"""A guest that lies on a lane, and code of a cell that plays the guest: calls end in time, and memory is bounded."""

from __future__ import annotations

import itertools
import os
import socket
import time
import tracemalloc

import pytest
from tests.sandbox import hostile
from tests.sandbox.hostile import CELL, HELLO_FRAME, data, end, event, ok

from atoll import ProtocolError, SandboxGone, Unresponsive
from atoll.client import turn
from atoll.errors import AtollError
from atoll.types import Execution
from atoll.wire import frames
from atoll.wire.frames import BULK, CREDIT, HELLO, OPEN

AT = 3  # the first two operations of the link are a relayed cell and the making of the lane
LANE = end({"ok": {"lane": 1, "state_lost": False}}, channel=2)
DONE = end({"ok": {"count": 2, "error": None, "truncated": False}}, channel=AT)


@pytest.fixture
def lying(tmp_path, monkeypatch):
    """A sandbox whose first cell went well, and whose lane says `attack`. `others` answers each further operation."""
    monkeypatch.setattr(turn, "GRACE", 0.5)
    monkeypatch.setattr(turn, "_QUEUE", 0.5)
    drivers = []

    def make(attack, others=lambda number: end({"error": {"code": "internal"}}, number), *, lane_answer=LANE):
        calls = itertools.count()

        def speak(sock, listener):
            sock.sendall(HELLO_FRAME)
            if next(calls) == 0:
                listener.wait_for_operation(1)
                sock.sendall(ok(**CELL))
                listener.wait_for_operation(2)
                sock.sendall(lane_answer)
                listener.wait_for_operation(3)
                attack(sock)
                return
            for number in itertools.count(1):
                listener.wait_for_operation(number)
                if listener.opened > 1000:
                    return
                sock.sendall(others(number))

        sandbox, driver = hostile.sandbox_that(speak, tmp_path)
        drivers.append((sandbox, driver))
        assert sandbox.run_code("1").success
        return sandbox

    yield make
    for sandbox, driver in drivers:
        sandbox._core._links.drop()
        driver.join()


def says(*pieces, hang_up=False):
    def attack(sock):
        sock.sendall(b"".join(pieces))
        if hang_up:
            sock.shutdown(socket.SHUT_WR)

    return attack


def seat(sandbox):
    return sandbox._core._links.lanes._seats["main"]


def test_an_honest_lane_gives_a_value(lying):
    """The control: what the lies below are made from."""
    said = (
        data(b"out", channel=AT),
        data(b"err", 2, AT),
        event({"result": {"text/plain": "1"}, "main": True}, AT),
        DONE,
    )
    done = lying(says(*said)).run_code("1", timeout=5)
    assert (done.stdout, done.stderr, done.text, done.count, done.success) == ("out", "err", "1", 2, True)


BIG = b'{"result":{"text/plain":"%s"},"main":true}' % (b"x" * 50)
LIES = {
    "another channel": data(b"x", channel=AT + 1) + DONE,
    "an earlier channel": data(b"x", channel=1) + DONE,
    "channel 0": data(b"x", channel=0) + DONE,
    "a frame after the end": DONE + data(b"x", channel=AT),
    "two ends": DONE + DONE,
    "an unknown kind": frames.encode(AT, 200, b"x") + DONE,
    "a greeting": frames.encode_json(AT, HELLO, {"version": 1}) + DONE,
    "a request": frames.encode(AT, OPEN, b"{}") + DONE,
    "credit": frames.encode(AT, CREDIT, b"\0\0\0\1") + DONE,
    "stdin": data(b"x", 0, AT) + DONE,
    "a stream that is none": data(b"x", 9, AT) + DONE,
    "an end that is no JSON": frames.encode(AT, hostile.END, b"\xff{"),
    "an end that is a list": frames.encode(AT, hostile.END, b"[]"),
    "an end that says nothing": end({}, AT),
    "an end without a count": end({"ok": {"error": None, "truncated": False}}, AT),
    "a count below zero": end({"ok": {"count": -1, "error": None, "truncated": False}}, AT),
    "a count that is text": end({"ok": {"count": "1", "error": None, "truncated": False}}, AT),
    "an error that is text": end({"ok": {"count": 1, "error": "x", "truncated": False}}, AT),
    "an error without a name": end({"ok": {"count": 1, "error": {"value": 1}, "truncated": False}}, AT),
    "an event that is no JSON": frames.encode(AT, hostile.EVENT, b"{") + DONE,
    "a result that is a number": event({"result": 5, "main": True}, AT) + DONE,
    "a form that is a number": event({"result": {"text/plain": 5}, "main": True}, AT) + DONE,
    "a picture that is none": event({"result": {"image/png": "%%%"}, "main": True}, AT) + DONE,
    "a bulk that is longer": data(BIG, BULK, AT) + event({"bulk": len(BIG) - 1}, AT) + DONE,
    "a bulk that is shorter": data(BIG, BULK, AT) + event({"bulk": 1 << 40}, AT) + DONE,
    "a bulk of no size": data(BIG, BULK, AT) + event({"bulk": None}, AT) + DONE,
    "a bulk that is no JSON": data(b"{" * 50, BULK, AT) + event({"bulk": 50}, AT) + DONE,
    "a bulk in a bulk": data(b'{"bulk":11 }', BULK, AT) + event({"bulk": 12}, AT) + end({"ok": 5}, AT),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_ends_in_a_typed_error_and_its_lane_is_never_used_again(lying, lie):
    sandbox = lying(says(lie))
    with pytest.raises(ProtocolError):
        sandbox.run_code("1", timeout=5)
    if seat(sandbox).lane is not None:  # the end was well formed, and what it said was not
        assert lie.count(DONE) == 0


@pytest.mark.parametrize("number", [None, "x", -1.5, True, [1]])
def test_a_lane_with_no_number_is_no_lane(lying, number):
    sandbox = lying(says(DONE), lane_answer=end({"ok": {"lane": number, "state_lost": False}}, channel=2))
    with pytest.raises(ProtocolError):
        sandbox.run_code("1", timeout=5)


def within(seconds, call):
    started = time.monotonic()
    try:
        outcome = call()
    except AtollError as error:
        outcome = error
    assert time.monotonic() - started < seconds, outcome
    return outcome


STOPS = {
    "says that there is time": lambda number: end({"ok": {"stopping": False, "left": 1e9}}, number),
    "says that there is less than none": lambda number: end({"ok": {"stopping": False, "left": -1e9}}, number),
    "says what no number is": lambda number: end({"ok": {"stopping": False, "left": "soon"}}, number),
    "says that it stops": lambda number: event({"stopping": True}, number),
    "fails": lambda number: end({"error": {"code": "internal", "message": "no"}}, number),
}


@pytest.mark.parametrize("others", STOPS.values(), ids=STOPS.keys())
def test_silence_is_bounded_by_the_timeout(lying, others):
    sandbox = lying(says(), others)
    assert isinstance(within(15, lambda: sandbox.run_code("1", timeout=0.3)), AtollError)
    assert seat(sandbox).lane is None


FLOODS = {
    "output": data(b"x" * 60_000, channel=AT),
    "single bytes": data(b"x", channel=AT) * 3000,
    "nothing": event({}, AT) * 3000,
    "results": event({"result": {"text/plain": "x"}, "main": False}, AT) * 500,
    "questions": event({"ask": 1, "question": {"tool": "x", "arguments": [], "keywords": {}}}, AT) * 500,
    "large results": event({"result": {"text/plain": "x" * 60_000}, "main": False}, AT),
}


@pytest.mark.parametrize(
    ("flood", "others"),
    [
        *((flood, STOPS["says that it stops"]) for flood in FLOODS.values()),
        (FLOODS["output"], STOPS["says that there is time"]),
    ],
    ids=[*FLOODS, "output without a stop"],
)
def test_an_endless_flood_is_bounded_in_time_and_memory(lying, flood, others):
    def attack(sock):
        while True:
            sock.sendall(flood)

    sandbox = lying(attack, others)
    tracemalloc.start()
    try:
        outcome = within(20, lambda: sandbox.run_code("1", timeout=0.4, max_output=1_000_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(outcome, Unresponsive), outcome
    assert peak < 60 << 20, peak


def test_an_endless_bulk_is_cut_off(lying):
    def attack(sock):
        while True:
            sock.sendall(data(b"x" * 60_000, BULK, AT))

    sandbox = lying(attack)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="longer than it may be"):
            sandbox.run_code("1", timeout=30, max_output=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20, peak


POSTMORTEMS = {
    "nothing": {},
    "another lane": {"lane": 7, "channel": AT, "count": 1, "error": None},
    "another request": {"lane": 1, "channel": 99, "count": 1, "error": None},
    "no numbers": {"lane": "1", "channel": None},
    "a strange count": {"lane": 1, "channel": AT, "count": "x", "error": None},
    "a strange error": {"lane": 1, "channel": AT, "count": 1, "error": 5},
}


@pytest.mark.parametrize("death", POSTMORTEMS.values(), ids=POSTMORTEMS.keys())
@pytest.mark.parametrize("heard", [b"", data(b"x", channel=AT)], ids=["unheard", "heard"])
def test_lies_about_a_death_are_not_believed_for_ever(lying, death, heard):
    """Each answer leads to the same question; a request is made again at most once."""
    asked = []

    def others(number):
        asked.append(number)
        return end({"ok": {**death, "stopping": False, "left": 0.0}}, number)

    sandbox = lying(says(heard, hang_up=True), others)
    outcome = within(25, lambda: sandbox.run_code("1", timeout=5))
    assert isinstance(outcome, ProtocolError | Unresponsive | SandboxGone), outcome
    assert len(asked) < 10


def test_a_death_that_is_told_is_believed(lying):
    """The control of the one above."""
    error = {"name": "ContextDied", "value": "v", "traceback": "t"}
    others = lambda number: end({"ok": {"lane": 1, "channel": AT, "count": 2, "error": error}}, number)  # noqa: E731
    done = lying(says(hang_up=True), others).run_code("1", timeout=5)
    assert isinstance(done, Execution)
    assert (done.error.name, done.state_lost) == ("ContextDied", True)


# Code of a cell against the real guest

INTERNALS = """
import os, socket, stat, struct, sys, time
frame = sys._getframe()
while not hasattr(frame.f_locals.get('self'), '_shared'): frame = frame.f_back
page = frame.f_locals['self']._shared.page
def is_socket(fd):
    try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError: return False
sockets = [fd for fd in map(int, os.listdir('/proc/self/fd')) if is_socket(fd)]
def send_all(data):
    for fd in sockets:
        try: socket.socket(fileno=os.dup(fd)).send(data, socket.MSG_DONTWAIT)
        except OSError: pass
"""
ATTACKS = {
    "garbage for everybody": "send_all(b'\\xff' * 1000)",
    "garbage and an endless loop": "send_all(b'\\xff' * 1000)\nwhile True: pass",
    "half a frame and an endless loop": "send_all(b'\\x10')\nwhile True: pass",
    "forged frames": "for kind in range(32):\n    for channel in range(4):\n"
    "        send_all(struct.pack('<IIBBxx', 2, channel, kind, 1) + b'{}')",
    "all sockets closed": "for fd in sockets: os.close(fd)",
    "all sockets closed and an endless loop": "for fd in sockets: os.close(fd)\nwhile True: pass",
    "all sockets shut": "for fd in sockets: socket.socket(fileno=os.dup(fd)).shutdown(2)",
    "ones in the page": "page[:] = b'\\xff' * len(page)",
    "zeros in the page and an endless loop": "page[:] = bytes(len(page))\nwhile True: pass",
    "random bytes in the page, for ever": "while True: page[:64] = os.urandom(64)",
    "ones in the page and death": "page[:] = b'\\xff' * len(page)\nos._exit(1)",
    "zeros in the page and death": "page[:] = bytes(len(page))\nos._exit(1)",
    "its main loop's own objects": "frame.f_locals['self']._shared = None",
    "no streams": "sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None",
    "builtins": "import builtins\nbuiltins.print = builtins.len = builtins.type = None",
    "signals": "import signal\nfor n in range(1, 32):\n"
    "    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_cell_that_plays_the_guest_harms_only_its_own_context(sandbox, attack, monkeypatch):
    monkeypatch.setattr(turn, "GRACE", 3.0)
    monkeypatch.setattr(turn, "_QUEUE", 2.0)
    context, other = "c" + os.urandom(6).hex(), "c" + os.urandom(6).hex()
    path = "ran-" + os.urandom(6).hex()
    for name in (context, other):
        for _ in range(2):
            sandbox.run_code("kept = 1", context=name)
    mark = f"open({path!r}, 'a').write('x')\n"
    outcome = within(40, lambda: sandbox.run_code(mark + INTERNALS + attack, context=context, timeout=0.5))
    assert isinstance(outcome, Execution | ProtocolError | Unresponsive), outcome
    assert len(sandbox.files.read(path)) <= 2, "it was run again and again"
    assert sandbox.run_code("kept", context=other, timeout=20).text == "1"
    within(40, lambda: sandbox.run_code("1", context=context, timeout=0.5))
    sandbox.contexts.restart(context)
    assert sandbox.run_code("1 + 1", context=context, timeout=20).text == "2"
    for name in (context, other):
        sandbox.contexts.delete(name)


def test_a_forged_end_is_believed_and_the_next_request_ends_in_time(sandbox):
    context = "c" + os.urandom(6).hex()
    sandbox.run_code("kept = 1", context=context)
    forged = (
        INTERNALS
        + """
answer = b'{"ok":{"count":7,"error":null,"truncated":false}}'
port = frame.f_locals['self']._streams.port
port.end(answer)
while True: pass
"""
    )
    assert sandbox.run_code(forged, context=context, timeout=5).count == 7
    done = within(20, lambda: sandbox.run_code("1", context=context, timeout=0.5))
    assert isinstance(done, Execution)
    assert (done.timed_out, done.state_lost) == (True, True)
    assert sandbox.run_code("1 + 1", context=context, timeout=20).text == "2"
    sandbox.contexts.delete(context)
