"""The HTTP client against servers that are slow, endless or want something else: bounded, whatever they send."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from atoll.http.address import Address
from atoll.http.client import Lost, Refused, TooLarge, ask, upgrade


@pytest.fixture
def serve(tmp_path):
    """An address whose server reads once and then does what it is given."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    heard = []

    def serve(work):
        def run():
            # Some have hung up, and the test is over, before this has begun.
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    heard.append(connection.recv(65536))
                    work(connection)

        threading.Thread(target=run, daemon=True).start()
        return Address("unix", str(tmp_path / "s"))

    serve.heard = heard
    yield serve
    listener.close()


def get(address, *, within=30, **options):
    return ask(address, "GET", "/x?y=1", {}, within=within, **options)


OK = b"HTTP/1.1 200 OK\r\n"


def test_an_answer_over_a_unix_socket(serve):
    answer = get(serve(lambda peer: peer.sendall(OK + b"A: b\r\nContent-Length: 2\r\n\r\nhi")))
    assert (answer.status, answer.headers["a"], answer.body) == (200, "b", b"hi")
    assert serve.heard[0].startswith(b"GET /x?y=1 HTTP/1.1\r\n")
    assert b"\r\nHost: localhost\r\n" in serve.heard[0]


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 ", OK, OK + b"Content-Length: 99999\r\n\r\n"])
def test_who_sends_a_byte_now_and_then_is_waited_for_only_so_long(serve, head):
    gone = threading.Event()

    def drip(peer):
        peer.sendall(head)
        while not gone.wait(0.05):
            peer.sendall(b"X")

    began = time.monotonic()
    with pytest.raises(Lost, match="took too long"):
        get(serve(drip), within=1)
    assert time.monotonic() - began < 20
    gone.set()


def test_the_deadline_holds_with_a_wait_of_the_callers_own(serve):
    asked = []

    def wait(sock, seconds):
        asked.append(seconds)
        return False

    with pytest.raises(Lost, match="took too long"):
        get(serve(lambda peer: peer.recv(1)), wait=wait)
    assert 0 < asked[0] <= 30


def endless(*pieces):
    def send(peer):
        peer.sendall(OK + pieces[0])
        while True:
            peer.sendall(pieces[1])

    return send


@pytest.mark.parametrize(
    "work",
    [
        endless(b"\r\n", b" " * 65536),
        endless(b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 9999),
        endless(b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b" " * 65536),
        endless(b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 9999),
        endless(b"Content-Length: 2000000\r\n\r\n", b" "),
    ],
)
def test_an_endless_answer_is_too_large(serve, work):
    with pytest.raises(TooLarge):
        get(serve(work), most=1 << 20)


def test_a_gzipped_answer_is_not_unpacked(serve):
    bomb = b"\x1f\x8b\x08" + b"\x00" * 9
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
    assert get(serve(lambda peer: peer.sendall(head + bomb))).body == bomb
    assert b"Accept-Encoding: identity\r\n" in serve.heard[0]


def test_what_comes_after_an_upgrade_is_left_in_the_socket(serve):
    address = serve(lambda peer: peer.sendall(b"HTTP/1.1 101 Go\r\nUpgrade: tcp\r\n\r\n\x01raw") or peer.recv(1))
    with upgrade(address, "POST", "/", {"Upgrade": "tcp", "Connection": "Upgrade"}, within=30) as sock:
        assert sock.recv(99) == b"\x01raw"
        assert sock.gettimeout() is None


def test_an_upgrade_that_is_refused_is_told(serve):
    with pytest.raises(Refused, match="403 No") as refused:
        upgrade(serve(lambda peer: peer.sendall(b"HTTP/1.1 403 No\r\n\r\n")), "GET", "/", {}, within=30)
    assert refused.value.status == 403


@pytest.mark.parametrize(("place", "cause"), [("gone", FileNotFoundError), ("dead", ConnectionRefusedError)])
def test_why_a_server_was_not_reached_is_its_cause(tmp_path, place, cause):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    with pytest.raises(Lost, match="not reached") as lost:
        get(Address("unix", str(tmp_path / place)))
    assert isinstance(lost.value.__cause__, cause)
    assert lost.value.unreached


def test_a_line_break_in_a_header_is_not_sent(serve):
    address = serve(lambda peer: None)
    with pytest.raises(Lost):
        ask(address, "GET", "/", {"A": "b\r\nEvil: yes"}, within=30)
