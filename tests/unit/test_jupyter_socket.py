"""The WebSocket of the driver `jupyter-server` against servers that answer as they like."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from atoll.drivers.jupyter_rest import Address
from atoll.drivers.jupyter_socket import Closed, WebSocket

HELLO = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n"
TEXT, FINAL = 0x01, 0x80


def text(data, first=TEXT | FINAL):
    return bytes([first, len(data)]) + data


class Peer:
    """Accepts one connection, says what it is given, and keeps what it hears."""

    def __init__(self, answer):
        self.answer, self.heard = answer, b""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        self.address = Address("http", "127.0.0.1", self.listener.getsockname()[1], "", "secret")
        return self

    def __exit__(self, *error):
        self.thread.join(10)
        self.listener.close()

    def _serve(self):
        connection, _ = self.listener.accept()
        with connection:
            self.heard += connection.recv(65536)
            connection.sendall(self.answer)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    self.heard += piece


def received(answer):
    """All texts until the server is done with, and what it heard."""
    texts = []
    with Peer(HELLO + answer) as peer:
        web = WebSocket(peer.address, "path")
        try:
            while True:
                texts += web.receive()
        except Closed:
            pass
        finally:
            web.close()
    return texts, peer.heard


def test_texts_come_whole_also_in_fragments():
    texts, heard = received(text(b"one") + text(b"t", TEXT) + text(b"w", 0) + text(b"o", FINAL) + text(b"three"))
    assert texts == ["one", "two", "three"]
    assert b"Authorization: token secret\r\n" in heard


def test_a_ping_is_answered_between_fragments():
    texts, heard = received(text(b"t", TEXT) + text(b"ping!", 0x89) + text(b"wo", FINAL))
    assert texts == ["two"]
    assert b"\x8a\x85" in heard, "a pong, masked"


@pytest.mark.parametrize(
    "bad",
    [
        text(b"x", 0xF1),
        b"\x81\x81key!x",
        b"\x81\x7f" + (1 << 40).to_bytes(8, "big"),
        text(b"x", FINAL),
        b"\x88\x00",
        b"\x81",
    ],
    ids=["reserved bits", "masked", "endless", "a continuation of nothing", "a close", "half a head"],
)
def test_what_makes_no_sense_ends_it_after_what_came_before(bad):
    assert received(text(b"good") + bad + text(b"after"))[0] == ["good"]


def test_a_server_that_does_not_shake_hands_is_told():
    with (
        Peer(b"HTTP/1.1 200 OK\r\n\r\n<html>") as peer,
        pytest.raises(Closed, match=r"refuses the web socket \(200 OK"),
    ):
        WebSocket(peer.address, "path")
