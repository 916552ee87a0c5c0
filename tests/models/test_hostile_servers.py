"""Servers that speak no HTTP, half of it, or without end; TLS that is not to be trusted; proxies."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading

import anyio
import pytest
from hypothesis import given, strategies as st
from tests.playedmodel import PlayedModel, says
from tests.thorough import examples

from atoll.errors import ModelError
from atoll.http import client
from atoll.models import load

HI = [{"role": "user", "content": "hi"}]


class Raw:
    """A server that sends the same bytes to everybody, whatever they say, and keeps what they said."""

    def __init__(self, answer, *, endless=b""):
        self.answer, self.endless, self.heard = answer, endless, []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.settimeout(10)
                    # What has come is read: an unread byte would make the end a reset, before the answer is seen.
                    self.heard.append(connection.recv(65536))
                    connection.sendall(self.answer)
                    while self.endless:
                        connection.sendall(self.endless)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except OSError:
                    pass


def ask(url, **options):
    retries = options.pop("retries", 0)
    model = load("m", base_url=url, retries=retries)

    async def work():
        try:
            return await model.ask(HI, **options)
        finally:
            await model.aclose()

    return anyio.run(work)


BODY = b'{"choices": [{"message": {"content": "hi"}}]}'


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
        + BODY[:5]
        + b"\r\n28\r\n"
        + BODY[5:]
        + b"\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n" + BODY,
    ],
)
def test_every_way_to_send_a_body_is_understood(answer):
    with Raw(answer) as server:
        assert ask(server.url).text == "hi"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cut off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "cut off after 2 of 99 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n folded\r\n\r\n{}", "no HTTP"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Len", "no HTTP"),
        (b"", "without an answer"),
    ],
)
def test_what_is_no_http_is_told(answer, words):
    with Raw(answer) as server, pytest.raises(ModelError, match=words) as wrong:
        ask(server.url)
    assert wrong.value.retryable


@pytest.mark.parametrize(
    ("answer", "endless", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 1_000_000, "more than 64 MB"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"f4240\r\n" + b" " * 1_000_000 + b"\r\n", "64 MB"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "did not answer within 1 s"),
    ],
)
def test_an_answer_without_an_end_ends(answer, endless, words):
    with Raw(answer, endless=endless) as server, pytest.raises(ModelError, match=words):
        ask(server.url, timeout=1 if "within" in words else 60)


PIECES = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"Content-Type: text/event-stream\r\n",
     b"HTTP/1.1 500 x\r\n", b"HTTP/1.1 ", b"Content-Length: 45\r\n", b"Content-Length: x\r\n",
     b"Transfer-Encoding: chunked\r\n", b"\r\n", b"2d\r\n", BODY, b"0\r\n\r\n", b"\x00"]
)  # fmt: skip


@examples(400, 40)
@given(st.lists(PIECES | st.binary(max_size=12), max_size=8).map(b"".join))
def test_any_bytes_are_a_reply_or_a_sentence(answer):
    with Raw(answer) as server:
        try:
            said = repr(ask(server.url, timeout=20))
        except ModelError as error:
            said = str(error)
    assert said.isprintable()
    assert "did not answer within" not in said


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=models.test", "-addext", "subjectAltName=DNS:models.test,IP:127.0.0.1",
         "-keyout", path / "key.pem", "-out", path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "cert.pem", path / "key.pem")
    return context, path / "cert.pem"


@pytest.fixture
def trusting(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    monkeypatch.setattr(client, "_tls", None)


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate, monkeypatch):
    monkeypatch.setattr(client, "_tls", None)
    with PlayedModel([says("x")], tls=certificate[0]) as server:
        with pytest.raises(ModelError, match=r"certificate of 127.0.0.1 is not valid: self.signed") as wrong:
            ask(server.url)
        assert not wrong.value.retryable
        assert server.requests == []


def test_a_certificate_that_is_vouched_for_is_taken_and_the_connection_kept(certificate, trusting):
    with PlayedModel(lambda request: says("x"), tls=certificate[0]) as server:
        model = load("m", base_url=server.url, api_key="sk-1")

        async def work():
            for _ in range(3):
                await model.ask(HI)
            await model.aclose()

        anyio.run(work)
        assert [request.connection for request in server.requests] == [1, 1, 1]
        with pytest.raises(ModelError, match=r"certificate of localhost is not valid"):
            ask(server.url.replace("127.0.0.1", "localhost"))


def test_a_server_that_never_agrees_on_tls_can_be_left():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match=r"did not answer within 0\.3 s"):
            ask(url, timeout=0.3)


class Tunnel(Raw):
    """A proxy that connects everybody to one port, whatever they ask for."""

    def __init__(self, port, status=b"200 OK"):
        super().__init__(b"")
        self.port, self.status = port, status

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with connection:
            self.heard.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 " + self.status + b"\r\n\r\n")
            if not self.status.startswith(b"200"):
                return
            with socket.create_connection(("127.0.0.1", self.port)) as there:
                back = threading.Thread(target=self._pump, args=[there, connection], daemon=True)
                back.start()
                self._pump(connection, there)
                back.join(10)

    @staticmethod
    def _pump(source, target):
        try:
            while piece := source.recv(65536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_a_proxy_is_asked_to_connect_and_sees_no_key(certificate, trusting, monkeypatch):
    with PlayedModel([says("through")], tls=certificate[0]) as server:
        port = int(server.url.split(":")[2].split("/")[0])
        with Tunnel(port) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://me:pw@").removesuffix("/v1"))
            model = load("m", base_url="https://models.test/v1", api_key="sk-1")
            assert anyio.run(model.ask, HI).text == "through"
            anyio.run(model.aclose)
    assert server.requests[0].authorization == "Bearer sk-1"
    (heard,) = proxy.heard
    assert heard.startswith(b"CONNECT models.test:443 HTTP/1.1\r\n")
    assert b"\r\nHost: models.test:443\r\nProxy-Authorization: Basic " in heard
    assert b"sk-1" not in heard


def test_a_proxy_that_refuses_is_told(monkeypatch):
    with Tunnel(1, b"407 Who are you") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.removesuffix("/v1"))
        with pytest.raises(ModelError, match=r"proxy 127.0.0.1 refused to connect to models.test:443.*407 Who are you"):
            ask("https://models.test/v1")


def test_a_proxy_for_plain_http_gets_the_whole_url(monkeypatch):
    with PlayedModel([says("through")]) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        assert ask("http://models.test/v1").text == "through"
        assert server.requests[0].path == "http://models.test/v1/chat/completions"
        assert server.requests[0].headers["host"] == "models.test"
