"""The keywords with which a sandbox is made: one definition for every call that takes them, blocking and awaited."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ..types import PermissionsLike, Resources
from .running import Callback

if TYPE_CHECKING:
    from .command import Seconds
    from .tools import Function, Tools


class Always(TypedDict, total=False):
    """What every such call takes; `Sandbox.create` says what each means."""

    image: str | os.PathLike[str] | None
    network: str | Iterable[str]
    resources: Resources | Mapping[str, Any] | None
    env: Mapping[str, str] | None
    timeout: Seconds | None
    lifetime: Seconds
    workdir: str
    strict: bool
    packages: Iterable[str]
    permissions: PermissionsLike
    ignore: Iterable[str]
    snapshot: str | None
    audit: bool
    on_progress: Callback | None
    tools: Tools | Mapping[str, Function] | None


class Ground(TypedDict, total=False):
    """What the workspace begins with."""

    source: str | os.PathLike[str] | None
    codebase: str | None
    preset: PermissionsLike


class OverSource(Always, total=False):
    """The keywords of a call that names the source itself."""

    labels: Mapping[str, str] | None


class Labelled(Always, Ground, total=False):
    """The keywords of a call that names the labels itself."""


class Wishes(Always, Ground, total=False):
    """The keywords of `create`, but for the driver."""

    labels: Mapping[str, str] | None


CREATE = ("driver", *Wishes.__annotations__)
"""Their names."""
