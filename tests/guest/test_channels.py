"""Streams and channels: the handshake, credit both ways, interleaving, and clients that misbehave."""

import contextlib
import os
import random
import socket
import sys

import pytest
from tests.guest.rawclient import eventually

from atoll.wire import frames
from atoll.wire.frames import CLOSE, CREDIT, DATA, END, EVENT, HEADER, HELLO, OPEN, WINDOW

ENDLESS = [sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 65536)"]


def hangs_up(client):
    """What the guest says before it closes the stream."""
    last = None
    while True:
        try:
            frame = client.receive()
        except ConnectionResetError:
            return last
        if frame is None:
            return last
        last = frame


def resident(guest):
    with open(f"/proc/{guest.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_hello_is_answered_with_hello(guest):
    client = guest.connect(greet=False)
    client.send(frames.encode_json(0, HELLO, {"version": 1}))
    frame = client.receive()
    assert (frame.kind, frame.channel, frame.json()) == (HELLO, 0, {"version": 1})
    client.close()


def test_hello_and_the_first_request_may_come_together(guest):
    client = guest.connect(greet=False)
    opening = frames.encode_json(1, OPEN, {"op": "exec", "argv": ["echo", "quick"]})
    client.send(frames.encode_json(0, HELLO, {"version": 1}) + opening)
    assert client.receive().kind == HELLO
    assert client.finish(1).stdout == b"quick\n"
    client.close()


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]])
def test_another_version_is_told_and_ends_the_stream(guest, version):
    client = guest.connect(greet=False)
    client.send(frames.encode_json(0, HELLO, {"version": version}))
    last = hangs_up(client)
    assert (last.kind, last.channel) == (END, 0)
    assert "version 1" in last.json()["error"]["message"]
    client.close()


BROKEN = {
    "no hello": frames.encode_json(1, OPEN, {"op": "processes"}),
    "an unknown kind": frames.encode_json(0, HELLO, {"version": 1}) + b"\0\0\0\0\0\0\0\0\x63\0",
    "too long a frame": frames.encode_json(0, HELLO, {"version": 1}) + b"\xff" * 10,
    "hello twice": frames.encode_json(0, HELLO, {"version": 1}) * 2 + frames.encode_json(1, HELLO, {}),
    "open on channel 0": frames.encode_json(0, HELLO, {"version": 1}) + frames.encode_json(0, OPEN, {"op": "x"}),
    "open that is no JSON": frames.encode_json(0, HELLO, {"version": 1}) + frames.encode(1, OPEN, b"{"),
    "open that is no object": frames.encode_json(0, HELLO, {"version": 1}) + frames.encode(1, OPEN, b"[]"),
    "open that is nested too deep": frames.encode_json(0, HELLO, {"version": 1})
    + frames.encode(1, OPEN, b"[" * 100_000),
}


@pytest.mark.parametrize("said", BROKEN.values(), ids=list(BROKEN))
def test_what_no_honest_client_says_ends_its_stream_and_no_other(guest, client, said):
    broken = guest.connect(greet=False)
    broken.send(said)
    broken.sock.shutdown(socket.SHUT_WR)
    hangs_up(broken)
    broken.close()
    assert client.run("echo", "fine").stdout == b"fine\n"


def test_a_channel_in_use_cannot_be_opened_again(guest, client):
    client.open("exec", argv=["cat"], stdin=True)
    client.send(frames.encode_json(1, OPEN, {"op": "processes"}))
    assert hangs_up(client).kind == END


def test_frames_of_a_channel_that_has_ended_are_ignored(client):
    channel = client.open("exec", argv=["true"])
    client.finish(channel)
    client.data(channel, b"late")
    client.eof(channel)
    client.call(channel, signal=9)
    client.give(channel, 5)
    client.cancel(channel)
    assert client.run("echo", "fine").stdout == b"fine\n"


def test_a_client_that_overdraws_its_window_is_cut_off(client):
    channel = client.open("exec", argv=["sleep", "60"], stdin=True)
    with contextlib.suppress(BrokenPipeError):
        for _ in range(WINDOW // frames.DATA_SIZE + 3):
            client.data(channel, bytes(frames.DATA_SIZE))
    assert "window" in hangs_up(client).json()["error"]["message"]


def test_a_client_within_its_window_is_not_cut_off(client):
    channel = client.open("exec", argv=["sleep", "60"], stdin=True)
    for _ in range(WINDOW // frames.DATA_SIZE):
        client.data(channel, bytes(frames.DATA_SIZE))
    assert client.run("echo", "fine").stdout == b"fine\n"


def test_credit_comes_back_for_exactly_what_was_consumed(client):
    content = bytes(10 * WINDOW)
    ended = client.upload("exec", content, argv=["wc", "-c"], stdin=True)
    assert int(ended.stdout) == len(content)
    assert 0 <= WINDOW - client.credit[1] < WINDOW // 4


def test_the_guest_sends_no_more_than_the_window(client):
    channel = client.open("exec", argv=ENDLESS)
    client.sock.settimeout(0.7)
    received = []
    with contextlib.suppress(TimeoutError):
        received.extend(HEADER.size + len(frame.payload) for frame in iter(client.receive, None))
    assert WINDOW - HEADER.size <= sum(received) <= WINDOW
    client.sock.settimeout(30)
    client.give(channel, 1000)
    left = WINDOW - sum(received)
    assert len(client.receive().payload) == left + 1000 - HEADER.size
    client.cancel(channel)
    client.finish(channel)


def test_a_slow_client_holds_up_its_command_and_nothing_else_and_costs_no_memory(guest, client):
    """It takes nothing at all: its own stream is full, and the guest's memory stays as it was."""
    slow = [guest.connect() for _ in range(3)]
    client.run("true")
    before = resident(guest)
    for other in slow:
        for _ in range(4):
            other.open("exec", argv=ENDLESS)
    for _ in range(20):
        assert client.run("echo", "quick").stdout == b"quick\n"
    grown = resident(guest) - before
    assert grown < 12 << 20
    for other in slow:
        other.close()
    eventually(lambda: client.do("processes").ok["processes"] == [])


def test_two_channels_share_a_stream(client):
    first = client.open("exec", argv=["cat"], stdin=True)
    second = client.open("exec", argv=["cat"], stdin=True)
    client.event(first), client.event(second)
    client.data(first, b"one")
    assert (client.receive().channel, client.data(second, b"two")) == (first, None)
    frame = client.receive()
    assert (frame.channel, frame.payload) == (second, b"two")
    client.eof(second)
    assert client.finish(second).ok["exit_code"] == 0
    client.data(first, b"three")
    client.eof(first)
    assert client.finish(first).stdout == b"three"


def test_a_channel_without_credit_does_not_hold_up_another_on_its_stream(client):
    stuck = client.open("exec", argv=ENDLESS)
    received = 0
    while received < WINDOW - HEADER.size:
        frame = client.receive()
        received += HEADER.size + len(frame.payload) if frame.kind in (DATA, EVENT) else 0
    assert client.run("echo", "quick").stdout == b"quick\n"
    client.cancel(stuck)
    client.finish(stuck)


def test_a_stream_has_a_limited_number_of_channels(client):
    for _ in range(1024):
        client.open("code", code="import time; time.sleep(60)")
    assert client.do("processes").error["code"] == "busy"
    client.cancel(1024)
    client.finish(1024)
    assert client.do("processes").ok


def test_answers_that_nobody_reads_end_the_stream(guest, client):
    flood = guest.connect()
    os.makedirs(os.path.join(guest.workspace, "x"))
    request = {"op": "stat", "path": "/" + "x" * 200}
    opening = b"".join(frames.encode_json(n, OPEN, request) for n in range(1, 100_000))
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        flood.sock.sendall(opening)
    assert client.run("echo", "fine").stdout == b"fine\n"
    assert resident(guest) < 120 << 20
    flood.close()


def test_close_is_answered_with_end(client):
    for op, arguments in (
        ("exec", {"argv": ["sleep", "60"]}),
        ("watch", {"path": "."}),
        ("write", {"path": "x"}),
        ("code", {"code": "import time; time.sleep(60)"}),
    ):
        channel = client.open(op, **arguments)
        client.cancel(channel)
        ended = client.finish(channel)
        assert ended.ok is not None or ended.error["code"] == "cancelled"


@pytest.mark.parametrize("seed", range(4))
def test_noise_never_hurts_the_guest(guest, client, seed):
    """Random frames, most of them well formed, from a client with no idea."""
    rng = random.Random(seed)
    names = ["exec", "attach", "signal", "processes", "code", "interrupt", "stat", "list", "read", "write"]
    names += ["mkdir", "move", "copy", "watch", "search", "pack", "unpack", None, 7, "nonsense"]
    values = [None, "x", "", "/", "\0", "\ud800", 0, -1, 2**70, 1.5, True, [], ["true"], ["true", 1], {}, {"a": "b"}]
    keys = ["path", "argv", "env", "cwd", "timeout", "limit", "pid", "signal", "code", "context", "source", "target"]
    keys += ["glob", "content", "offset", "size", "mode", "pty", "stdin", "hold", "recursive", "overwrite", "parents"]
    noisy = guest.connect()
    noisy.sock.settimeout(2)
    try:
        for _ in range(300):
            kind = rng.choice([OPEN, OPEN, OPEN, DATA, CREDIT, CLOSE, frames.EOF, frames.CALL])
            channel = rng.randrange(1, 40) if kind != OPEN else rng.randrange(1, 100_000)
            request = {key: rng.choice(values) for key in rng.sample(keys, 4)}
            request["op"] = rng.choice(names)
            if "path" in request and request["op"] in ("write", "mkdir", "unpack"):
                request["path"] = "noise"
            payload = {
                OPEN: lambda request=request: frames.encode_json(0, OPEN, request)[10:],
                frames.CALL: lambda request=request: frames.encode_json(0, OPEN, request)[10:],
                CREDIT: lambda: rng.randbytes(4),
            }.get(kind, lambda: rng.randbytes(rng.randrange(100)))()
            noisy.send(frames.encode(channel, kind, payload, rng.randrange(4)))
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        pass
    assert client.run("echo", "fine").stdout == b"fine\n"
    noisy.close()
    assert client.code("1 + 1", context="fresh").events[0]["result"] == {"text/plain": "2"}
