"""A guest that has been taken over: what it says to its keeper, or does not, harms nobody.

The client's side of this is in tests/sandbox/test_hostile_guest.py.
"""

import contextlib
import os
import signal

import pytest
from tests.escape import residue
from tests.escape.harness import USER, Maker, Refused, eventually

GUEST = """
import os, signal, socket, threading, time
import atoll.engine.first as first
from atoll.guest.server import Server
from atoll.engine import kernel

class Hostile:
    def __init__(self, control, config, *rest, **more):
        self.control = control
        self.honest = Server
        self.config = config
    def prefork_context(self):
        pass
    def run(self):
        {run}

first.Server = Hostile
"""
# Never reads what the keeper sends.
DEAF = "while True: time.sleep(1000)"
# Waits for its second client, then talks to its keeper as if it were somebody.
CHATTY = """
        self.control.recv(10)
        self.control.recv(10)
        for word in (b'{"op": "destroy"}', b"x" * 60000, b"\\\\0", b"[" * 50000):
            self.control.send(word)
        time.sleep(1000)
"""
# Will not die with its keeper.
CLINGING = """
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 0)
        while True: time.sleep(1000)
"""


@pytest.fixture(params=["root", "user"])
def taken_over(request):
    """Gives a maker whose sandboxes have a hostile guest."""
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("needs uid 0, to make sandboxes as root does")
    uid = 0 if request.param == "root" else (USER if os.getuid() == 0 else os.getuid())
    makers = []

    def get(run):
        maker = Maker(request.param, uid)
        makers.append(maker)
        maker.call("start_zygote", before=GUEST.format(run=run.strip()))
        return maker

    yield get
    for maker in makers:
        maker.close()


def test_a_guest_that_does_not_listen_cannot_stop_its_keeper(taken_over):
    maker = taken_over(DEAF)
    box = maker.create()
    processes = residue.descendants(box.handle["pid"])
    answers = maker.call("ask_keeper", id=box.id, request={"op": "open"}, times=1000)
    refused = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert refused
    assert set(refused) <= {"busy", "sandbox_error"}
    status = maker.call("ask_keeper", id=box.id, request={"op": "status"})
    assert status[0]["ok"]["status"] == "running"
    box.destroy()
    eventually(lambda: residue.traces(maker, box, processes) == {}, "nothing is left")


def test_the_lifetime_of_a_guest_that_does_not_listen_is_kept(taken_over):
    maker = taken_over(DEAF)
    box = maker.create(lifetime=1.0)
    processes = residue.descendants(box.handle["pid"])
    with contextlib.suppress(Refused):  # its life may end in the middle of this
        maker.call("ask_keeper", id=box.id, request={"op": "open"}, times=500)
    eventually(lambda: residue.traces(maker, box, processes) == {}, "nothing is left")


def test_a_guest_that_talks_to_its_keeper_is_not_heard(taken_over):
    """The keeper reads nothing of a guest: nothing there can be a mistake in how it does."""
    maker = taken_over(CHATTY)
    box = maker.create()
    processes = residue.descendants(box.handle["pid"])
    maker.call("ask_keeper", id=box.id, request={"op": "open"})
    for _ in range(20):
        status = maker.call("ask_keeper", id=box.id, request={"op": "status"})
        assert status[0]["ok"]["status"] == "running"
    box.destroy()
    eventually(lambda: residue.traces(maker, box, processes) == {}, "nothing is left")


def test_a_guest_that_clings_to_life_ends_when_its_keeper_was_killed(taken_over):
    maker = taken_over(CLINGING)
    if maker.name == "user":
        pytest.skip("without a control group nothing tells whose process it is; docs/explanation/security.md says so")
    box = maker.create()
    processes = residue.descendants(box.handle["pid"])
    os.kill(box.handle["pid"], signal.SIGKILL)
    maker.list()
    eventually(lambda: residue.traces(maker, box, processes) == {}, "nothing is left")


def test_requests_that_nobody_sends_are_refused_by_the_keeper(maker):
    with maker.create() as box:
        for request in (
            {"op": "nonsense"},
            {"op": ["open"]},
            {},
            {"op": "lifetime"},
            {"op": "lifetime", "seconds": "x"},
            {"op": "hold"},
            {"op": "transplant", "twins": []},
            {"op": "adopt"},
            {"op": "adopt", "task": 1, "shadow": 1, "settings": {}},
        ):
            answer = maker.call("ask_keeper", id=box.id, request=request)[0]
            assert answer["error"]["code"] in ("unknown_request", "invalid_input", "sandbox_error"), request
        assert box.run("echo alive")["stdout"] == "alive\n"
