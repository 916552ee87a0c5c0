"""The paths that a caller names, as the review writes them."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InvalidInput, InvalidPath
from ..policy.paths import check_path
from ..policy.text import shown


def check_selection(paths: Iterable[object] | None) -> tuple[str, ...] | None:
    """Paths relative to the workspace, without "." and doubled slashes; None for all of it.

    Raises:
        InvalidInput: it is no list of paths.
        InvalidPath: one of them is absolute or climbs with "..".
    """
    if paths is None:
        return None
    if isinstance(paths, str | bytes) or not isinstance(paths, Iterable):
        raise InvalidInput(f"paths is {shown(paths)}; give a list of paths, such as ['src/main.py'].")
    return tuple(dict.fromkeys(_relative(path) for path in paths))


def _relative(path: object) -> str:
    text = check_path(path, "A path to review")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if text.startswith("/") or ".." in names:
        raise InvalidPath(f"{shown(text)} is no path below the workspace; write it as the diff does, as 'src/main.py'.")
    return "/".join(names)


def is_within(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of these, or below one."""
    chosen = places if isinstance(places, set | frozenset) else frozenset(places)
    return "" in chosen or path in chosen or (bool(chosen) and any(above in chosen for above in parents(path)))


def parents(path: str) -> list[str]:
    """The directories above a path, the outermost first, without the root."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]
