"""Both sides of a review, opened: what the sandbox sees and what the source has now."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Self

from ..errors import file_error
from . import beneath
from .base import Base, load_base
from .candidates import Candidates, find_candidates
from .comparing import Comparison, Difference, is_masked
from .judging import Judge, judge_of
from .stage import Stage
from .traps import folded_path, parts_of_repositories
from .tree import Tree


def open_source(source: str) -> int:
    """A descriptor of the source, which was a real path: no link may have come between.

    Raises:
        FileError: it is gone, or something on the way to it is a link now.
    """
    top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return beneath.open_beneath(top, source.lstrip("/"), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        number = error.errno or 5
        raise file_error(number, f"The source {source} cannot be opened: {os.strerror(number)}.", source) from error
    finally:
        os.close(top)


class Look:
    """A `with` block in which both sides are open."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._masked = stage.permissions is not None or bool(stage.ignore)
        self.judge: Judge = judge_of(stage)
        self._root = open_source(stage.source)
        self.merged = Tree(stage.merged, one_mount=False)
        self.source = Tree(self._root, one_mount=True)
        self.base: Base = load_base(stage.base)
        self.candidates = Candidates()
        self._coming: frozenset[str] = frozenset()
        # What a review keeps lies in the state directory, with all else that decides what is trusted.
        state, root = os.path.dirname(os.path.realpath(stage.state)), stage.source.rstrip("/") + "/"
        self._state = state.removeprefix(root) if state.startswith(root) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.merged.close()
        self.source.close()
        os.close(self._root)

    def is_state(self, path: str) -> bool:
        """Whether a path is in the state directory, or on the way to it, where the source holds that."""
        return self._state is not None and (
            f"{self._state}/".startswith(f"{path}/") or f"{path}/".startswith(f"{self._state}/")
        )

    def may_be_there(self, path: str) -> bool:
        """Whether the source may have a part of a repository at a path after an apply.

        What the sandbox has now does not tell: it could take one part away while the other is judged, and have both
        back when they are brought over.
        """
        return folded_path(path) in self._coming or any(
            tree.stat(path) is not None for tree in (self.merged, self.source)
        )

    def hides_mode(self, before: int, after: int) -> bool:
        """Whether a file's bits differ only because a view shows them so."""
        return self._masked and is_masked(before, after)

    def differences(self, wanted: Iterable[str] | None, *, text: bool) -> list[Difference]:
        """Raises SandboxError when there is more than anybody can review, OSError for a layer that is gone."""
        comparison = Comparison(self.merged, self.source, self.judge, self.base, text=text, masked=self._masked)
        self.candidates = find_candidates(self.stage.uppers)
        for path in self.base.applied:
            # If it is gone from the sandbox, no layer may say so: a view never had it below them.
            self.candidates.add(path)
        found = comparison.run(self.candidates, wanted)
        new = (difference.change.path for difference in found if difference.new is not None)
        self._coming = frozenset(part for path in new for part in parts_of_repositories(path))
        return found
