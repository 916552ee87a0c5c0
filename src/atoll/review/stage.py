"""What a review is about: the files of a sandbox, and the directory of the host that they came from."""

from __future__ import annotations

from typing import NamedTuple

from ..types import Permissions


class Stage(NamedTuple):
    """One sandbox with a source.

    Attributes:
        merged: a descriptor of the workspace as the sandbox sees it now.
        uppers: descriptors of the overlay's layers that hold what the sandbox changed, newest first. Their content is
            hostile; it only says where to look, never what is there.
        source: the real path of the host's directory.
        permissions: the rules, or None where everything may be written.
        ignore: patterns of what is never taken over, as in .gitignore.
        base: where `record_base` writes, or has written, what the source was at the start; None for nowhere.
        state: a private directory of the host, the same for every sandbox of this user.
        started: when the sandbox began to see the source, in nanoseconds of the clock, or earlier. What the source has
            not changed since then is known to be as it was, before the record says so. None when nobody knows.
    """

    merged: int
    uppers: tuple[int, ...]
    source: str
    permissions: Permissions | None
    ignore: tuple[str, ...]
    base: str | None
    state: str
    started: int | None = None
