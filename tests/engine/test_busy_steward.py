"""A steward whose wall waits for something still tells how its sandbox is, and ends it when it is told to."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from atoll.engine import messages
from atoll.engine.steward.steward import SOCKET, STOPPED, Steward
from atoll.engine.steward.wall import Wall
from atoll.testing.waiting import eventually


class SlowWall(Wall):
    """Pauses when it is allowed to by a pipe of the test's, and notes what becomes of it."""

    def start(self):
        self._guest, control = messages.pair()
        return control

    def pause(self):
        self._note("pauses")
        with open(f"{self.job['place']}/allowed", "r+b", buffering=0) as allowed:
            self._note(f"paused {self.wait(allowed, self.job['patience'])}")

    def resume(self):
        self._note("resumed")

    def end(self):
        self._note("ended")

    def _note(self, text):
        with open(f"{self.job['place']}/notes", "a") as file:
            file.write(f"{text}\n")


class Kept:
    def __init__(self, place, *, lifetime=600, patience=60.0):
        self._place = place
        self.box = f"{place}/box"
        os.makedirs(f"{self.box}/files")
        os.mkfifo(f"{place}/allowed")
        (pathlib.Path(place) / "notes").touch()
        self._line, theirs = messages.pair()
        self._open = [self._line]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._line.close()
                wall = SlowWall(self.box, {"place": place, "patience": patience})
                Steward({"box": self.box, "lifetime": lifetime}, wall, theirs).live()
            finally:
                os._exit(0)
        theirs.close()
        assert "ready" in messages.receive(self._line)[0]
        self.ask("keep", self._line)

    def connect(self):
        sock = messages.connect(f"{self.box}/{SOCKET}")
        sock.settimeout(20)
        self._open.append(sock)
        return sock

    def ask(self, op, sock=None, **more):
        sock = sock or self.connect()
        messages.send(sock, {"op": op, **more})
        return messages.receive(sock)[0]

    def begin(self, op, **more):
        sock = self.connect()
        messages.send(sock, {"op": op, **more})
        return sock

    def notes(self):
        return (pathlib.Path(self._place) / "notes").read_text().splitlines()

    def allow(self):
        with open(f"{self._place}/allowed", "w") as file:
            file.write("x")

    def end(self):
        for sock in self._open:
            sock.close()
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


@pytest.fixture
def make(tmp_path):
    made = []

    def _make(**more):
        made.append(Kept(str(tmp_path), **more))
        return made[-1]

    yield _make
    for each in made:
        each.end()


def paused(kept):
    """One whose wall is pausing it, and who has asked for that."""
    waits = kept.begin("pause")
    eventually(lambda: kept.notes() == ["pauses"], "it is busy")
    return waits


def test_the_status_is_told_meanwhile(make):
    kept = make()
    before = kept.connect()
    waits = paused(kept)
    assert kept.ask("status") == {"ok": {"status": "paused"}}
    assert kept.ask("status", before) == {"ok": {"status": "paused"}}
    assert kept.notes() == ["pauses"], "the control: it is busy still"
    kept.allow()
    assert messages.receive(waits)[0] == {"ok": {"status": "paused"}}
    assert kept.notes() == ["pauses", "paused True"]


def test_what_can_wait_does_and_is_done_in_its_turn(make):
    kept = make()
    waits = paused(kept)
    later, gone = kept.begin("resume"), kept.begin("lifetime", seconds=500)
    gone.close()
    assert kept.ask("status") == {"ok": {"status": "paused"}}
    later.setblocking(False)
    with pytest.raises(BlockingIOError):
        later.recv(1, socket.MSG_PEEK)
    kept.allow()
    later.settimeout(20)
    assert messages.receive(waits)[0] == {"ok": {"status": "paused"}}
    assert messages.receive(later)[0] == {"ok": {"status": "running"}}
    assert kept.notes() == ["pauses", "paused True", "resumed"]


def test_who_destroys_it_need_not_wait(make):
    kept = make()
    waits = paused(kept)
    assert kept.ask("destroy") == {"ok": {}}
    assert kept.notes() == ["pauses", "ended"]
    assert not os.path.exists(kept.box)
    with pytest.raises(messages.Ended):
        messages.receive(waits)


def test_who_stops_it_waits_and_its_files_stay(make):
    kept = make()
    paused(kept)
    stops = kept.begin("stop")
    assert kept.ask("status") == {"ok": {"status": "paused"}}
    kept.allow()
    assert messages.receive(stops)[0] == {"ok": {}}
    assert os.path.exists(f"{kept.box}/{STOPPED}")


def test_it_ends_with_its_lifetime_meanwhile(make):
    kept = make(lifetime=1.0)
    waits = paused(kept)
    eventually(lambda: not os.path.exists(kept.box), "it has ended")
    assert kept.notes() == ["pauses", "ended"]
    waits.close()


def test_a_wait_has_its_end_though_others_ask(make):
    kept = make(patience=0.3)
    waits = paused(kept)
    while kept.notes() == ["pauses"]:
        kept.ask("status")
    assert messages.receive(waits)[0] == {"ok": {"status": "paused"}}
    assert kept.notes() == ["pauses", "paused False"]
