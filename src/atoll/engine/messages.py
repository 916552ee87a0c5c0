"""Small JSON messages with descriptors over SOCK_SEQPACKET, between client, zygote, keeper and first process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import Any

VERSION = 1
MAX_MESSAGE = 128 << 10
_SO_PASSRIGHTS = 83
_SPACE = socket.CMSG_SPACE(8 * 4)
_to_json = json.JSONEncoder(separators=(",", ":")).encode


# What `connect` raises where nobody listens. Other errors say nothing about the other side.
NOBODY = (FileNotFoundError, NotADirectoryError, ConnectionRefusedError)


class Ended(Exception):
    """The peer is gone."""


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def stream() -> tuple[socket.socket, socket.socket]:
    """A stream for a client, and its other end for the guest. Where the kernel can see to it, no descriptors are sent
    that way: the client takes none, and letting go of one may take long."""
    ours, theirs = socket.socketpair()
    with contextlib.suppress(OSError):  # before Linux 6.16
        ours.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    return ours, theirs


def encode(message: dict[str, Any]) -> bytes:
    """The bytes of a message.

    Raises:
        ValueError: it is too long to be sent.
    """
    data = _to_json(message).encode()
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"a request of {len(data)} bytes is over the limit of {MAX_MESSAGE}")
    return data


def decode(data: bytes) -> dict[str, Any]:
    """The message in some bytes.

    Raises:
        Ended: there are none.
        ValueError: they are no message.
    """
    if not data:
        raise Ended
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")  # noqa: TRY004 - what is wrong is the peer's text
    return message


def send(sock: socket.socket, message: dict[str, Any], *fds: int) -> None:
    """Send a message.

    Raises:
        OSError: the peer is gone.
    """
    if fds:
        socket.send_fds(sock, [encode(message)], fds)
    else:
        sock.send(encode(message))


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and its descriptors.

    Raises:
        Ended: the peer is gone.
        ValueError: what came is no message.
        TimeoutError: the socket has a timeout and nothing came.
    """
    try:
        # Not socket.recv_fds: before Python 3.12 it drops the flag, and what comes would be inherited.
        data, ancillary, _, _ = sock.recvmsg(MAX_MESSAGE, _SPACE, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError as error:
        raise Ended from error
    fds = [int.from_bytes(raw[i : i + 4], sys.byteorder) for _, _, raw in ancillary for i in range(0, len(raw) - 3, 4)]
    try:
        return decode(data), fds
    except BaseException:
        close(fds)
        raise


def close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _short(path: str) -> tuple[int, str]:
    """Unix socket paths end at 107 bytes: go through the directory's descriptor."""
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return fd, f"/proc/self/fd/{fd}/{name}"


def connect(path: str) -> socket.socket:
    """Connect to a listening socket.

    Raises:
        FileNotFoundError, NotADirectoryError, ConnectionRefusedError: nobody listens there.
        OSError: it cannot be told, for want of descriptors or of permission.
    """
    fd, short = _short(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(short)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(fd)
    return sock


def listen(path: str) -> socket.socket:
    """Listen on a path that does not exist yet, for this user only.

    It appears when somebody already listens there, so a name that nobody answers to is always a dead one.

    Raises:
        FileExistsError: it does exist.
    """
    directory, name = os.path.split(path)
    fd, draft = _short(f"{directory}/.{name}.{os.getpid()}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.bind(draft)
        try:
            os.chmod(draft, 0o600)
            sock.listen(128)
            os.link(draft, f"{os.path.dirname(draft)}/{name}")
        finally:
            os.unlink(draft)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(fd)
    return sock


def peer_uid(sock: socket.socket) -> int:
    import struct

    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iII", credentials)[1])
