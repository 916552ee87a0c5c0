"""Which codebases there are: one small file each, replaced in one step. It decides which version is current."""

from __future__ import annotations

import json
import os

from ..errors import CodebaseNotFound, InvalidInput, StoreError
from ..home import private
from ..policy.codebases import ID_PREFIX, check_codebase
from ..types import Codebase
from . import durable

ABOUT = "about.json"
_FORMAT = 1
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 10
_NAMED = 5


def new_id() -> str:
    return ID_PREFIX + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(_ID_LENGTH))


def this_user() -> str:
    """The login name of who runs this, or the number where nobody has given it a name."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def save(directory: str, codebase: Codebase) -> None:
    """Make `codebase` what is true of the directory's codebase, for good. Raises OSError."""
    draft = f"{directory}/.{ABOUT}.{os.urandom(8).hex()}"
    try:
        with open(draft, "w", encoding="ascii", opener=private) as file:
            json.dump({"format": _FORMAT, **codebase._asdict()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, f"{directory}/{ABOUT}")
    except BaseException:
        os.unlink(draft)
        raise
    durable.flush(directory)


def load(directory: str) -> Codebase | None:
    """None where no codebase is.

    Raises:
        StoreError: its file cannot be read.
    """
    try:
        with open(f"{directory}/{ABOUT}", "rb") as file:
            value = json.loads(file.read())
        if value.pop("format") != _FORMAT:
            raise ValueError("a newer atoll wrote it")
        return Codebase(**value)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"The codebase in {directory} cannot be read: {error}.",
            hint="Move that directory away to do without it.",
        ) from error


def remove(directory: str) -> None:
    """There is no codebase here any more, for good. Raises OSError."""
    os.unlink(f"{directory}/{ABOUT}")
    durable.flush(directory)


def sweep(directory: str) -> None:
    """Remove what somebody who was killed in `save` has left. Nobody else may be in it. Raises OSError."""
    for name in os.listdir(directory):
        if name.startswith(f".{ABOUT}."):
            os.unlink(f"{directory}/{name}")


def directories(home: str) -> list[str]:
    """Where codebases are, or were."""
    try:
        return [f"{home}/{name}" for name in os.listdir(home) if name.startswith(ID_PREFIX)]
    except FileNotFoundError:
        return []


def listing(home: str) -> list[Codebase]:
    """All of them, newest first. Raises StoreError."""
    found = [load(directory) for directory in directories(home)]
    return sorted((each for each in found if each is not None), key=lambda each: (-each.created, each.id))


def resolve(home: str, wanted: str | Codebase) -> Codebase:
    """The codebase with this id, beginning of an id, name, or `owner/name`. A bare name is first of this user's.

    Raises:
        CodebaseNotFound: there is none.
        InvalidInput: there are several, or nothing could be called so.
    """
    words = check_codebase(wanted)
    owner, slash, name = words.rpartition("/")
    if slash:
        found = [each for each in listing(home) if each.name == name and each.owner == owner]
    elif words.startswith(ID_PREFIX):
        exact = load(f"{home}/{words}")
        found = [exact] if exact else [each for each in listing(home) if each.id.startswith(words)]
    else:
        named = [each for each in listing(home) if each.name == words]
        found = [each for each in named if each.owner == this_user()] or named
    if not found:
        raise not_found(words)
    if len(found) > 1:
        several = ", ".join(f"{each.id} ({each.owner}/{each.name})" for each in found[:_NAMED])
        raise InvalidInput(f"{words!r} may be several codebases: {several}. Give the id, or owner/name.")
    return found[0]


def not_found(words: str) -> CodebaseNotFound:
    return CodebaseNotFound(f"No codebase is called {words!r}.", hint="`atoll codebase list` shows those that exist.")
