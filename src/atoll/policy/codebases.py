"""How codebases are called: their names, their owners, and the words that find one again."""

from __future__ import annotations

import re

from ..errors import InvalidInput, InvalidPath
from ..types import Codebase
from .paths import check_path
from .text import shown

ID_PREFIX = "cb-"
MAX_NAME = 100

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*)"


def check_codebase_name(name: object) -> str:
    """Raises InvalidInput for what could not be typed, or would be taken for an id."""
    if not isinstance(name, str):
        raise InvalidInput(f"The name of a codebase is {shown(name)}; give text such as 'my-project'.")
    if len(name) > MAX_NAME:
        raise InvalidInput(f"The name {name[:16]!r}… has {len(name)} characters; at most {MAX_NAME} are allowed.")
    if re.fullmatch(_NAME, name) is None:
        raise InvalidInput(
            f"The name {shown(name)} is not allowed; use ASCII letters, digits and . _ -, "
            "and begin with a letter, a digit or _."
        )
    if name.startswith(ID_PREFIX):
        raise InvalidInput(f"The name {shown(name)} looks like an id; begin it with something else than {ID_PREFIX!r}.")
    return name


def check_owner(owner: object) -> str:
    """Raises InvalidInput."""
    if not isinstance(owner, str) or not 0 < len(owner) <= MAX_NAME or "/" in owner or not owner.isprintable():
        raise InvalidInput(
            f"The owner is {shown(owner)}; give a name of at most {MAX_NAME} characters, on one line and without '/'."
        )
    return owner


def check_codebase(codebase: object) -> str:
    """What names a codebase: an id or the beginning of one, a name, `owner/name`, or a `Codebase`.

    Raises:
        InvalidInput: nothing could be called so.
    """
    if isinstance(codebase, Codebase):
        return codebase.id
    if not isinstance(codebase, str) or not codebase:
        raise InvalidInput(f"codebase is {shown(codebase)}; give the name or the id of a codebase.")
    owner, slash, name = codebase.rpartition("/")
    if slash:
        check_owner(owner)
    if re.fullmatch(_NAME, name) is None or len(name) > MAX_NAME:
        raise InvalidInput(f"codebase is {shown(codebase)}, which is neither a name nor an id.")
    return codebase


def check_relative(path: object, what: str = "path") -> str:
    """A path inside a codebase: no leading slash, no empty part, no "." and no "..".

    Raises:
        InvalidPath: it is another kind of path.
    """
    text = check_path(path, what)
    if any(part in ("", ".", "..") for part in text.split("/")):
        raise InvalidPath(f"{what} is {shown(text)}; give it relative to the codebase, such as 'src/main.py'.")
    return text
