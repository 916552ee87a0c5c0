"""Many streams over one: what goes in at one end comes out at the other, whoever is at that end."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading

import pytest
from hypothesis import given, settings, strategies as st

from atoll.guest import switchboard
from atoll.guest.keeperline import KeeperLine
from atoll.guest.loop import Loop
from atoll.guest.switchboard import CREDIT, DATA, END, OPEN, ORDER, WINDOW, WORD, Switchboard

PATIENCE = 20
HEAD = struct.Struct(">BII")


class Board:
    """One end in a thread of its own; `control` is what its keeper or its guest holds."""

    def __init__(self, stream, *, may_open):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(PATIENCE)
        self._loop = Loop()
        fd = stream.detach()
        self.board = Switchboard(self._loop, fd, fd, theirs, self._loop.stop, may_open=may_open)
        self.thread = threading.Thread(target=self._loop.run, daemon=True)
        self.thread.start()

    def open(self):
        """A stream, as a keeper opens one for a client."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"c"], [theirs.fileno()])
        ours.settimeout(PATIENCE)
        return ours

    def take(self):
        """The far end of a stream, as a guest gets one."""
        select.select([self.control], [], [], PATIENCE)
        (order,) = KeeperLine(self.control).orders()
        assert order.kind == b"c"
        sock = socket.socket(fileno=order.descriptors[0])
        sock.settimeout(PATIENCE)
        return sock

    def close(self):
        self.control.close()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def boards():
    one, other = socket.socketpair()
    near, far = Board(one, may_open=False), Board(other, may_open=True)
    yield near, far
    near.close()
    far.close()


@pytest.fixture
def hostile():
    """The keeper's end alone, with a guest that sends what it likes."""
    stream, raw = socket.socketpair()
    near = Board(stream, may_open=False)
    raw.settimeout(PATIENCE)
    yield near, raw
    raw.close()
    near.close()


def receive_all(sock):
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def until_refused(send, most):
    """How many bytes are taken before none are, or the other side hangs up."""
    sent = 0
    try:
        while sent < most:
            sent += send()
    except OSError:
        pass
    return sent


def test_bytes_pass_both_ways(boards):
    near, far = boards
    with near.open() as client, far.take() as guest:
        client.sendall(b"question")
        assert guest.recv(100) == b"question"
        guest.sendall(b"answer")
        assert client.recv(100) == b"answer"


def test_an_end_of_one_direction_leaves_the_other_open(boards):
    near, far = boards
    with near.open() as client, far.take() as guest:
        client.sendall(b"all of it")
        client.shutdown(socket.SHUT_WR)
        assert receive_all(guest) == b"all of it"
        guest.sendall(b"still here")
        guest.close()
        assert receive_all(client) == b"still here"


def test_much_more_than_the_window_arrives_whole(boards):
    near, far = boards
    sent = os.urandom(1 << 16) * 160
    with near.open() as client, far.take() as guest:
        writer = threading.Thread(target=lambda: (client.sendall(sent), client.shutdown(socket.SHUT_WR)))
        writer.start()
        assert receive_all(guest) == sent
        writer.join(PATIENCE)


def test_a_stream_that_nobody_reads_holds_up_no_other(boards):
    near, far = boards
    with near.open() as stuck, far.take() as unread, near.open() as client, far.take() as guest:
        stuck.settimeout(0.5)
        sent = until_refused(lambda: stuck.send(b"x" * (1 << 16)), 64 << 20)
        # What is under way is bounded: the window, and what the sockets at both ends hold.
        assert sent < 8 * WINDOW
        client.sendall(b"quick")
        assert guest.recv(100) == b"quick"
        assert unread.recv(10) == b"x" * 10


def test_many_streams_are_kept_apart(boards):
    near, far = boards
    pairs = [(near.open(), far.take()) for _ in range(50)]
    for number, (client, _) in enumerate(pairs):
        client.sendall(b"%d" % number)
    assert [int(guest.recv(100)) for _, guest in pairs] == list(range(50))
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_orders_pass_and_a_guest_cannot_give_any(boards):
    near, far = boards
    near.control.send(b'e{"A":"b"}')
    assert far.control.recv(100) == b'e{"A":"b"}'
    far.control.send(b"anything")
    with near.open() as client, far.take() as guest:
        client.sendall(b"goes on")
        assert guest.recv(100) == b"goes on"


def test_the_first_word_of_a_guest_reaches_its_keeper_and_no_other(boards):
    near, far = boards
    far.control.send(b'{"serving":true}')
    assert near.control.recv(100) == b'{"serving":true}'
    far.control.send(b"more")
    with near.open() as client, far.take() as guest:
        client.sendall(b"hello")
        assert guest.recv(5) == b"hello"
    near.control.settimeout(0.05)
    with pytest.raises(TimeoutError):
        near.control.recv(100)


def test_a_guest_that_has_more_to_say_is_cut_off(hostile):
    near, raw = hostile
    raw.sendall(HEAD.pack(WORD, 0, 4) + b"word")
    assert near.control.recv(100) == b"word"
    raw.sendall(HEAD.pack(WORD, 0, 4) + b"more")
    assert near.control.recv(100) == b""
    assert receive_all(raw) == b""


def test_the_end_of_the_stream_ends_everything():
    one, other = socket.socketpair()
    near, far = Board(one, may_open=False), Board(other, may_open=True)
    with near.open() as client, far.take() as guest:
        near.close()
        assert far.control.recv(10) == b""
        assert guest.recv(10) == b""
        assert client.recv(10) == b""
    far.close()


@given(chunks=st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=5000)), max_size=30))
@settings(max_examples=30)
def test_whatever_is_sent_on_several_streams_arrives_in_order(chunks):
    one, other = socket.socketpair()
    near, far = Board(one, may_open=False), Board(other, may_open=True)
    pairs = [(near.open(), far.take()) for _ in range(3)]
    for number, chunk in chunks:
        pairs[number][0].sendall(chunk)
    for number, (client, guest) in enumerate(pairs):
        client.shutdown(socket.SHUT_WR)
        assert receive_all(guest) == b"".join(chunk for to, chunk in chunks if to == number)
        client.close()
        guest.close()
    near.close()
    far.close()


@pytest.mark.parametrize(
    "frame",
    [
        HEAD.pack(OPEN, 7, 0),
        HEAD.pack(ORDER, 0, 3) + b"c..",
        HEAD.pack(99, 1, 0),
        HEAD.pack(CREDIT, 1, 4) + struct.pack(">I", 1),
        HEAD.pack(CREDIT, 1, 3) + b"abc",
        HEAD.pack(DATA, 1, 0xFFFFFFFF),
        HEAD.pack(DATA, 1, switchboard.MAX_FRAME + 1),
        HEAD.pack(END, 1, 0) + HEAD.pack(DATA, 1, 1) + b"x",
        HEAD.pack(END, 1, 0) * 2,
        HEAD.pack(CREDIT, 1, 4) + bytes(4),
        HEAD.pack(END, 7, 0),
        HEAD.pack(CREDIT, 7, 4) + struct.pack(">I", 1),
    ],
    ids=["opens", "orders", "kind", "credit", "short", "endless", "long", "after the end", "two ends", "no credit",
         "to nobody", "credit of nobody"],
)  # fmt: skip
def test_a_guest_that_breaks_the_rules_is_cut_off(hostile, frame):
    near, raw = hostile
    with near.open() as client:
        assert raw.recv(HEAD.size) == HEAD.pack(OPEN, 1, 0)
        raw.sendall(HEAD.pack(DATA, 1, 4) + b"fine")
        assert client.recv(4) == b"fine"
        raw.sendall(frame)
        assert near.control.recv(10) == b""


def test_more_bytes_than_were_granted_are_not_kept(hostile):
    near, raw = hostile
    with near.open() as client:
        assert raw.recv(HEAD.size) == HEAD.pack(OPEN, 1, 0)
        piece = b"x" * switchboard.MAX_FRAME
        taken = until_refused(lambda: raw.sendall(HEAD.pack(DATA, 1, len(piece)) + piece) or len(piece), 64 << 20)
        assert taken < 4 * WINDOW
        assert client.recv(1 << 16)


@given(noise=st.binary(max_size=400))
@settings(max_examples=60)
def test_noise_ends_the_line_or_waits_for_more(noise):
    stream, raw = socket.socketpair()
    near = Board(stream, may_open=False)
    client = near.open()
    raw.sendall(noise)
    raw.close()
    assert near.control.recv(10) == b""
    client.close()
    near.close()


def test_answers_that_a_guest_does_not_read_are_not_kept_for_ever(hostile):
    """Each byte for a client that is gone is answered with a credit, outside of every limit of the sandbox."""
    near, raw = hostile
    with near.open():
        raw.recv(HEAD.size)
    frames = (HEAD.pack(DATA, 1, 1) + b"x") * 4096
    assert until_refused(lambda: raw.send(frames), 16 << 20) < 8 << 20
    near.thread.join(PATIENCE)
    assert not near.thread.is_alive()


def test_empty_pieces_are_not_kept_for_a_client_that_does_not_read(hostile):
    near, raw = hostile
    with near.open():
        raw.recv(HEAD.size)
        raw.sendall(HEAD.pack(DATA, 1, 0))
        near.thread.join(PATIENCE)
        assert not near.thread.is_alive()


def test_pieces_for_a_client_that_is_gone_come_to_an_end(hostile):
    """Who carries them is outside of the sandbox's limits, and would do it for as long as the guest likes."""
    near, raw = hostile
    with near.open():
        raw.recv(HEAD.size)
    raw.settimeout(PATIENCE)
    reading = threading.Thread(target=lambda: until_refused(lambda: len(raw.recv(1 << 16)) or 1 << 30, 1 << 29))
    reading.start()
    frames = (HEAD.pack(DATA, 1, 1) + b"x") * 4096
    assert until_refused(lambda: raw.sendall(frames) or len(frames), 64 << 20) < 8 << 20
    reading.join(PATIENCE)
    near.thread.join(PATIENCE)
    assert not near.thread.is_alive()


def test_what_was_on_its_way_to_a_stream_that_has_ended_is_no_fault(hostile):
    near, raw = hostile
    with near.open() as client:
        raw.recv(HEAD.size)
        client.sendall(b"four")
        raw.sendall(HEAD.pack(END, 1, 0))
    told = b""
    while not told.endswith(HEAD.pack(END, 1, 0)):
        told += raw.recv(1 << 16)
    raw.sendall(HEAD.pack(CREDIT, 1, 4) + struct.pack(">I", 3) + HEAD.pack(CREDIT, 1, 4) + struct.pack(">I", 1))
    with near.open():
        assert raw.recv(HEAD.size) == HEAD.pack(OPEN, 2, 0)
        raw.sendall(HEAD.pack(CREDIT, 1, 4) + struct.pack(">I", 1))
        assert near.control.recv(10) == b""
