"""The blocking and the asynchronous I/O shim keep the same promises."""

from __future__ import annotations

import os
import socket
import threading
import time

import anyio
import pytest

from atoll import io as atoll_io
from atoll.client.decode import TextChunks
from atoll.client.feed import Feed
from atoll.errors import InvalidInput
from atoll.io import AnyIO, BlockingIO, Stream, drive


@pytest.fixture(params=["blocking", "asyncio", "trio"])
def run(request):
    """Runs a function of an IO to its end, as its users do."""
    if request.param == "blocking":
        return lambda function, *arguments: drive(function(BlockingIO(), *arguments))
    return lambda function, *arguments: anyio.run(function, AnyIO(), *arguments, backend=request.param)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_bytes_come_and_the_end_is_empty(run, pair):
    ours, theirs = pair
    theirs.sendall(b"hello")
    assert run(lambda io: io.recv(ours, 100, 5)) == b"hello"
    theirs.close()
    assert run(lambda io: io.recv(ours, 100, None)) == b""


def test_nothing_in_time_is_a_timeout_and_loses_nothing(run, pair):
    ours, theirs = pair
    with pytest.raises(TimeoutError):
        run(lambda io: io.recv(ours, 100, 0.02))
    theirs.sendall(b"late")
    assert run(lambda io: io.recv(ours, 100, 0)) == b"late"


def test_much_is_sent_while_the_peer_reads_slowly(run, pair):
    ours, theirs = pair
    received = bytearray()

    def read():
        while piece := theirs.recv(10_000):
            received.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    data = os.urandom(3_000_000)
    run(lambda io: io.send(ours, data))
    ours.close()
    reader.join()
    assert received == data


def test_a_peer_that_takes_nothing_is_a_timeout(run, pair, monkeypatch):
    monkeypatch.setattr(atoll_io, "SEND_TIMEOUT", 0.05)
    with pytest.raises(TimeoutError):
        run(lambda io: io.send(pair[0], b"x" * 10_000_000))


def test_descriptors_come_with_a_message(run):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    with ours, theirs:
        socket.send_fds(theirs, [b"here"], [reading])
        data, fds = run(lambda io: io.recv_fds(ours, 100, 1, 5))
        with pytest.raises(TimeoutError):
            run(lambda io: io.recv_fds(ours, 100, 1, 0.02))
    os.write(writing, b"x")
    assert (data, os.read(fds[0], 1)) == (b"here", b"x")
    assert not os.get_inheritable(fds[0])
    for fd in (reading, writing, *fds):
        os.close(fd)


def test_a_lock_is_had_by_one_and_given_up_in_time(run):
    async def use(io):
        lock = io.lock()
        assert await lock.acquire()
        assert not await try_elsewhere(io, lock)
        lock.release()
        assert await lock.acquire(0.01)

    async def try_elsewhere(io, lock):
        if isinstance(io, BlockingIO):
            return await lock.acquire(0.01)
        outcome = []

        async def attempt():
            outcome.append(await lock.acquire(0.01))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attempt)
        return outcome[0]

    run(use)


def test_work_on_the_disk_gives_its_result_and_its_error(run):
    assert run(lambda io: io.in_thread(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        run(lambda io: io.in_thread(lambda: 1 // 0))


def test_a_shield_holds_off_a_cancellation():
    done = []

    async def clean_up():
        with anyio.CancelScope() as scope:
            scope.cancel()
            with AnyIO().shield(5):
                await AnyIO().sleep(0.01)
                done.append(True)

    anyio.run(clean_up)
    assert done == [True]
    with BlockingIO().shield(5):
        drive(BlockingIO().sleep(0))


def test_closing_a_stream_wakes_who_reads_from_it(pair):
    stream = Stream(BlockingIO(), pair[0])
    heard = []
    reader = threading.Thread(target=lambda: heard.append(drive(stream.recv(None))))
    reader.start()
    deadline = time.monotonic() + 10
    while stream._users == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    stream.close()
    reader.join(20)
    assert heard == [b""]
    assert pair[0].fileno() == -1
    stream.close()


def test_a_stream_knows_when_it_is_stale(pair):
    stream = Stream(BlockingIO(), pair[0])
    assert not stream.stale()
    pair[1].sendall(b"x")
    assert stream.stale()
    assert drive(stream.recv(1)) == b"x"
    assert not stream.stale()
    pair[1].close()
    assert stream.stale()
    stream.close()
    assert stream.stale()


def test_a_coroutine_that_suspends_without_a_loop_is_a_mistake_that_is_told():
    class Suspends:
        def __await__(self):
            yield

    async def wait():
        await Suspends()

    with pytest.raises(RuntimeError, match="without an event loop"):
        drive(wait())


def test_text_is_cut_between_characters_only():
    text = "aé€𝄞z"
    chunks = TextChunks()
    pieces = [chunks.feed(bytes([byte])) for byte in text.encode()]
    assert "".join(pieces) == text
    assert chunks.finish() == ""
    assert chunks.feed(b"\xe2\x82") == ""
    assert chunks.finish() == "\ufffd"


@pytest.mark.parametrize(
    "source", ["abcdef", b"abcdef", bytearray(b"abcdef"), memoryview(b"abcdef"), ["abc", b"", b"def"]]
)
def test_input_comes_in_pieces_of_at_most_the_size_asked_for(source):
    feed = Feed(BlockingIO(), source)
    pieces = []
    while piece := drive(feed.read(4)):
        assert len(piece) <= 4
        pieces.append(bytes(piece))
    assert b"".join(pieces) == b"abcdef"
    assert not drive(feed.read(4))


def test_small_input_is_known_at_once_and_the_rest_is_not():
    assert Feed(BlockingIO(), "abc").at_once() == b"abc"
    assert Feed(BlockingIO(), b"x" * (1 << 20)).at_once() is None
    assert Feed(BlockingIO(), [b"x"]).at_once() is None


def test_a_file_that_does_not_wait_is_refused():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with (
        open(reading, "rb", buffering=0) as file,
        open(writing, "wb"),
        pytest.raises(InvalidInput, match="does not block"),
    ):
        drive(Feed(BlockingIO(), file).read(10))
