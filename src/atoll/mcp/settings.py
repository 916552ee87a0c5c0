"""What the owner of the server has decided. No tool call can change any of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..policy.presets import DEFAULT

PROFILES = {"quick": 5.0, "default": 30.0, "analysis": 120.0, "extended": 300.0}
MAX_TIMEOUT = 3600.0
LIFETIME = 8 * 3600.0
MAX_SNAPSHOTS = 50
"""Of one session."""
MAX_AGENTS = 4
"""Runs at once that the servers of one user have begun: each may spend money of the owner."""
WALLS = ("bwrap", "docker", "gvisor", "jail", "strongest", "wasm")
"""What a call may choose as its environment. Those without a wall of their own only the owner can choose."""


class Settings(NamedTuple):
    """How sessions are made, and what calls may do.

    Attributes:
        driver: the wall of a new session; None is atoll's default.
        wishes: the other keywords of `Sandbox.create` for a new session, such as `network` and `packages`.
        lifetime: seconds that a session lives on after its last use.
        space: sessions of servers with another space are not seen; the directory that the server was started in
            unless given.
        sources: directories of the host; a session may be made over one of them, or one below.
        preset: the rules for a session over such a directory.
        apply: whether `apply` may change the source of a session.
        install: whether sessions may have packages of the host's package index installed.
        max_output: characters of text in one answer.
        max_sessions: how many there may be at once.
        echo: whether the tool `echo` is there, which measures what a call costs that does nothing.
    """

    driver: str | None = None
    wishes: Mapping[str, Any] = {}
    lifetime: float = LIFETIME
    space: str = "default"
    sources: tuple[str, ...] = ()
    preset: str = DEFAULT
    apply: bool = False
    install: bool = True
    max_output: int = 100_000
    max_sessions: int = 32
    echo: bool = False
