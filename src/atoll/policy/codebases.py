"""How codebases are called: their names, their owners, and the words that find one again."""

from __future__ import annotations

from ..errors import InvalidInput, InvalidPath
from ..types import Codebase
from .names import check_name
from .paths import check_path
from .text import shown

ID_PREFIX = "cb-"
_LONGEST_OWNER = 100


def check_codebase_name(name: object) -> str:
    """Raises InvalidInput for what could not be typed, or would be taken for an id."""
    text = check_name(name, "The name of the codebase")
    if text.startswith(ID_PREFIX):
        raise InvalidInput(f"The name {shown(name)} looks like an id; begin it with something else than {ID_PREFIX!r}.")
    return text


def check_owner(owner: object) -> str:
    """Raises InvalidInput."""
    if not isinstance(owner, str) or not 0 < len(owner) <= _LONGEST_OWNER or "/" in owner or not owner.isprintable():
        raise InvalidInput(
            f"The owner is {shown(owner)}; give a name of at most {_LONGEST_OWNER} printable characters and no '/'."
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
    check_name(name, "codebase")
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
