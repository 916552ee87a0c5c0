"""The zygote and what it makes, from outside: one for all, at hand for the next, gone without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from atoll import Sandbox
from atoll.engine import launch, messages
from atoll.engine.layout import Layout


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = str(tmp_path / "home")
    monkeypatch.setenv("ATOLL_HOME", path)
    yield path
    launch.shut_down(path)


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_many_processes_that_start_at_once_share_one_zygote(home):
    code = "from atoll import Sandbox\nwith Sandbox.create() as sb: print(sb.run('echo up').stdout, end='')"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(6)]
    assert {process.communicate(timeout=60)[0] for process in running} == {b"up\n"}
    assert len([n for n in os.listdir(Layout(home).run) if n.startswith("zygote-")]) == 1


def test_after_shut_down_nothing_parked_is_left_and_the_next_call_starts_anew(home):
    with Sandbox.create():
        pass
    launch.shut_down(home)
    wait_until(lambda: os.listdir(Layout(home).boxes) == [])
    with Sandbox.create() as sandbox:
        assert sandbox.run("echo again").stdout == "again\n"


def test_a_sandbox_survives_the_zygote(home):
    with Sandbox.create() as sandbox:
        launch.shut_down(home)
        assert sandbox.run("echo alive").stdout == "alive\n"
        assert Sandbox.connect(sandbox.id).run("echo too").stdout == "too\n"


def test_a_maker_that_dies_before_it_keeps_the_sandbox_leaves_nothing(home):
    Sandbox.create().destroy()
    places = Layout(home)
    with launch.connect(home) as sock:
        from atoll.engine.jobs import COMMON

        messages.send(sock, {"create": {**COMMON, "env": {"A": "1"}}})
        answer, fds = messages.receive(sock)
        for fd in fds:
            os.close(fd)
        made = answer["ready"]["id"]
        assert os.path.exists(places.box(made))
    wait_until(lambda: not os.path.exists(places.box(made)) and not os.path.exists(places.socket(made)))


def test_an_unknown_request_gets_a_clear_answer(home):
    Sandbox.create().destroy()
    with launch.connect(home) as sock:
        messages.send(sock, {"make": "coffee"})
        assert messages.receive(sock)[0]["error"]["code"] == "unsupported"


def test_a_keeper_refuses_what_it_does_not_know(home):
    with Sandbox.create() as sandbox, messages.connect(Layout(home).socket(sandbox.id)) as sock:
        messages.send(sock, {"op": "explode"})
        assert messages.receive(sock)[0]["error"]["code"] == "unknown_request"
        sock.send(b"\xff not json")
        with pytest.raises(messages.Ended):
            messages.receive(sock)
        assert sandbox.run("echo fine").stdout == "fine\n"
