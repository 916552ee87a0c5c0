"""The seal of a result: HMAC-SHA256 with a key that never leaves this state directory."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat

from ..errors import StoreError
from .canonical import canonical
from .results import Result, result_to_json

_SIZE = 32
_DOMAIN = b"atoll validation result 1\n"


def sealed(result: Result, directory: str) -> Result:
    """The result with the seal of this state directory. Raises StoreError."""
    key = _key(directory)
    named = result._replace(key=_name(key), seal="")
    return named._replace(seal=_seal(named, key))


def flaw(result: Result, directory: str) -> str | None:
    """What is wrong with the seal, in a sentence, or None when it is intact. Raises StoreError."""
    if not result.seal:
        return "It has no seal."
    key = _key(directory)
    if hmac.compare_digest(_seal(result._replace(seal=""), key).encode(), result.seal.encode("utf-8", "replace")):
        return None
    if result.key != _name(key):
        return f"It was not sealed here: its key is {result.key[:16]!r}, and that of {directory} is {_name(key)!r}."
    return "Its seal is broken: it was altered after it was sealed."


def _seal(result: Result, key: bytes) -> str:
    try:
        text = canonical(result_to_json(result))
    except (ValueError, TypeError, RecursionError):  # a value that somebody put together, and that no job gives
        return ""
    return hmac.new(key, _DOMAIN + text, hashlib.sha256).hexdigest()


def _name(key: bytes) -> str:
    """Tells keys apart, and nothing of them."""
    return hashlib.sha256(b"atoll validation key\n" + key).hexdigest()[:16]


def _key(directory: str) -> bytes:
    path = f"{directory}/key"
    try:
        return _read(path)
    except FileNotFoundError:
        _make(path)
        return _read(path)


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"The key {path} cannot be read: {error.strerror}.") from error
    try:
        found = os.fstat(fd)
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            raise StoreError(
                f"The key {path} is not yours alone (mode {stat.S_IMODE(found.st_mode):o}), so seals prove nothing.",
                hint=f"If nobody has read it, run: chmod 600 {path}. Else remove it, and run the jobs again.",
            )
        key = os.read(fd, _SIZE + 1)
    finally:
        os.close(fd)
    if len(key) != _SIZE:
        raise StoreError(f"The key {path} has {len(key)} bytes instead of {_SIZE}.", hint=f"Run: rm {path}")
    return key


def _make(path: str) -> None:
    """Of several processes at once, one makes it and all use it: a link is there whole or not at all."""
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, os.urandom(_SIZE))
        os.fsync(fd)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
    finally:
        os.close(fd)
        os.unlink(draft)
