"""A guest that lies about a cell, and code of a cell that plays the guest: calls end in time, memory is bounded."""

from __future__ import annotations

import os
import socket
import time
import tracemalloc

import pytest
from tests.sandbox import hostile
from tests.sandbox.hostile import CELL, HELLO_FRAME, data, end, event, ok

from atoll import Busy, ProtocolError, Unresponsive
from atoll.client import contextqueue
from atoll.errors import AtollError
from atoll.types import Execution
from atoll.wire import frames
from atoll.wire.frames import BULK, EVENT, QUEUED, STARTED

DONE = ok(**CELL)
QUEUED_EVENT, STARTED_EVENT = (frames.encode(1, EVENT, payload) for payload in (QUEUED, STARTED))


@pytest.fixture
def lying(tmp_path, monkeypatch):
    """A sandbox whose guest answers each cell with `attack`."""
    monkeypatch.setattr(contextqueue, "GRACE", 0.5)
    monkeypatch.setattr(contextqueue, "_PATIENCE", 0.5)
    drivers = []

    def make(attack):
        def speak(sock, listener):
            sock.sendall(HELLO_FRAME)
            listener.wait_for_operation(1)
            attack(sock)

        sandbox, driver = hostile.sandbox_that(speak, tmp_path)
        drivers.append((sandbox, driver))
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


def test_an_honest_guest_gives_a_value(lying):
    """The control: what the lies below are made from."""
    said = (data(b"out"), data(b"err", 2), event({"result": {"text/plain": "1"}, "main": True}), DONE)
    done = lying(says(*said)).run_code("1", timeout=5)
    assert (done.stdout, done.stderr, done.text, done.count, done.success) == ("out", "err", "1", 1, True)


BIG = b'{"result":{"text/plain":"%s"},"main":true}' % (b"x" * 50)
LIES = {
    "an end that says nothing": end({}),
    "an end without a count": end({"ok": {"error": None, "truncated": False}}),
    "a count below zero": ok(**{**CELL, "count": -1}),
    "a count that is text": ok(**{**CELL, "count": "1"}),
    "an error that is text": ok(**{**CELL, "error": "x"}),
    "an error without a name": ok(**{**CELL, "error": {"value": 1}}),
    "a result that is a number": event({"result": 5, "main": True}) + DONE,
    "a form that is a number": event({"result": {"text/plain": 5}, "main": True}) + DONE,
    "a picture that is none": event({"result": {"image/png": "%%%"}, "main": True}) + DONE,
    "a bulk that is longer": data(BIG, BULK) + event({"bulk": len(BIG) - 1}) + DONE,
    "a bulk that is shorter": data(BIG, BULK) + event({"bulk": 1 << 40}) + DONE,
    "a bulk of no size": data(BIG, BULK) + event({"bulk": None}) + DONE,
    "a bulk that is no JSON": data(b"{" * 50, BULK) + event({"bulk": 50}) + DONE,
    "a bulk in a bulk": data(b'{"bulk":11 }', BULK) + event({"bulk": 12}) + end({"ok": 5}),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_ends_in_a_typed_error(lying, lie):
    with pytest.raises(ProtocolError):
        lying(says(lie)).run_code("1", timeout=5)


def within(seconds, call):
    started = time.monotonic()
    try:
        outcome = call()
    except AtollError as error:
        outcome = error
    assert time.monotonic() - started < seconds, outcome
    return outcome


WAITS = {
    "nothing": b"",
    "that others run": QUEUED_EVENT,
    "that others run, again and again": QUEUED_EVENT * 1000,
    "that its turn comes and goes": (QUEUED_EVENT + STARTED_EVENT) * 1000,
    "that its turn has come": STARTED_EVENT * 1000,
}


@pytest.mark.parametrize("said", WAITS.values(), ids=WAITS.keys())
def test_silence_is_bounded_by_the_timeout(lying, said):
    sandbox = lying(says(said))
    outcome = within(15, lambda: sandbox.run_code("1", timeout=0.3))
    assert isinstance(outcome, Busy | Unresponsive | ProtocolError), outcome


def test_an_endless_change_of_turns_is_bounded_in_time(lying):
    def attack(sock):
        while True:
            sock.sendall(QUEUED_EVENT + STARTED_EVENT)

    sandbox = lying(attack)
    assert isinstance(within(15, lambda: sandbox.run_code("1", timeout=0.3)), AtollError)


FLOODS = {
    "output": data(b"x" * 60_000, channel=1),
    "single bytes": data(b"x", channel=1) * 3000,
    "nothing": event({}) * 3000,
    "results": event({"result": {"text/plain": "x"}, "main": False}) * 500,
    "questions": event({"ask": 1, "question": {"tool": "x", "arguments": [], "keywords": {}}}) * 500,
    "large results": event({"result": {"text/plain": "x" * 60_000}, "main": False}),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_an_endless_flood_is_bounded_in_time_and_memory(lying, flood):
    def attack(sock):
        while True:
            sock.sendall(flood)

    sandbox = lying(attack)
    tracemalloc.start()
    try:
        outcome = within(20, lambda: sandbox.run_code("1", timeout=0.4, max_output=1_000_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(outcome, ProtocolError | Unresponsive), outcome
    assert peak < 60 << 20, peak


def test_an_endless_bulk_is_cut_off(lying):
    def attack(sock):
        while True:
            sock.sendall(data(b"x" * 60_000, BULK))

    sandbox = lying(attack)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="longer than it may be"):
            sandbox.run_code("1", timeout=30, max_output=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20, peak


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
    monkeypatch.setattr(contextqueue, "GRACE", 3.0)
    context, other = "c" + os.urandom(6).hex(), "c" + os.urandom(6).hex()
    path = "ran-" + os.urandom(6).hex()
    for name in (context, other):
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
port = frame.f_locals['self']._streams._port
port.end(answer)
while True: pass
"""
    )
    assert sandbox.run_code(forged, context=context, timeout=5).count == 7
    done = within(20, lambda: sandbox.run_code("1", context=context, timeout=0.5))
    assert isinstance(done, Execution)
    # The cell that goes on is interrupted, and its own end is no answer to the request after it.
    assert (done.timed_out, done.state_lost, done.count) == (True, False, 3)
    assert sandbox.run_code("1 + 1", context=context, timeout=20).text == "2"
    sandbox.contexts.delete(context)
