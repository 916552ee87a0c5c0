"""What a Sandbox may do with its source, and what it has done to it."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..client.review import AsyncReview
from ..io import drive
from ..types import Applied, Change, Explanation, PermissionsLike
from .docs import documented_by

if TYPE_CHECKING:
    from ..client.reviewing import OnConflict, Paths
    from ..sandbox import AsyncSandbox


@documented_by(AsyncReview)
class Review:
    """Part of `Sandbox`."""

    _core: AsyncSandbox

    def explain(self, path: str | os.PathLike[str]) -> Explanation:
        return self._core.explain(path)

    def set_permissions(self, permissions: PermissionsLike, *, force: bool = False) -> None:
        drive(self._core.set_permissions(permissions, force=force))

    def diff(self, paths: Paths = None, *, text: bool = True) -> builtins.list[Change]:
        return drive(self._core.diff(paths, text=text))

    def apply(
        self,
        paths: Paths = None,
        *,
        on_conflict: OnConflict = "ask",
        reviewed: Sequence[Change] | None = None,
        new_hidden: bool = False,
    ) -> Applied:
        return drive(self._core.apply(paths, on_conflict=on_conflict, reviewed=reviewed, new_hidden=new_hidden))

    def discard(self, *, force: bool = False) -> None:
        drive(self._core.discard(force=force))
