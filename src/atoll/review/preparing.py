"""Getting new content ready beside the source, and the steps that put it in place."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ..types import Change
from .commit import Moved
from .comparing import Difference
from .content import link_content
from .journal import Identity, Step
from .looking import Look
from .planning import Plan
from .selection import parents
from .staging import Staging
from .tree import Tree

_RACE = "It changes while it is applied."
_OTHERS = "It belongs to another user in the source, and only root could keep it so."


class Prepared(NamedTuple):
    """Where new content is staged, and its digest."""

    staged: str
    digest: str | None


class Preparation:
    """Stages what is to be put into the source.

    Attributes:
        links: the targets of the links that are staged, by their paths.
    """

    def __init__(self, look: Look, staging: Staging) -> None:
        self._look = look
        self._staging = staging
        self._ready: dict[str, Prepared] = {}
        self.links: dict[str, str] = {}

    def stage(self, difference: Difference) -> str | None:
        """Get the content of a file or a link ready; why that cannot be, or None.

        Raises:
            OSError: the source's disk is full, for instance.
        """
        change = difference.change
        if change.type == "directory" or difference.new is None or changes_mode_only(difference):
            return None
        old = difference.old
        if old is not None and os.geteuid() not in (0, old.st_uid):
            return _OTHERS
        prepared = self._stage_link(change) if change.type == "symlink" else self._stage_file(difference)
        if prepared is None:
            return _RACE
        self._ready[change.path] = prepared
        return None

    def _stage_link(self, change: Change) -> Prepared | None:
        try:
            target = self._look.merged.link_target(change.path)
        except OSError:
            return None
        digest = link_content(target).digest
        # The very target that was judged, not one that took its place.
        if digest != change.digest:
            return None
        self.links[change.path] = target
        return Prepared(self._staging.add_link(target, self._owner(change.path, None)), digest)

    def _stage_file(self, difference: Difference) -> Prepared | None:
        change, old = difference.change, difference.old
        try:
            content = self._look.merged.open_file(change.path)
        except OSError:
            return None
        try:
            name, copied = self._staging.add_file(content, self._mode(difference), self._owner(change.path, old))
        finally:
            os.close(content)
        if copied.digest != change.digest or not copied.steady:
            self._staging.forget(name)
            return None
        if old is not None and stat.S_ISREG(old.st_mode):
            self._staging.keep_attributes(name, self._look.source, change.path)
        return Prepared(name, copied.digest)

    def _mode(self, difference: Difference) -> int:
        change = difference.change
        if change.old_mode is not None and self._look.hides_mode(change.old_mode, change.new_mode or 0):
            return change.old_mode & 0o777
        return (change.new_mode or 0) & 0o777

    def _owner(self, path: str, old: os.stat_result | None) -> tuple[int, int]:
        """Whose it will be: as before, or else as its directory."""
        if old is not None:
            return old.st_uid, old.st_gid
        owner = os.fstat(self._look.source.root)
        for above in parents(path):
            found = self._look.source.stat(above)
            if found is None or not stat.S_ISDIR(found.st_mode):
                break
            owner = found
        return owner.st_uid, owner.st_gid

    def steps(self, plan: Plan, accepted: dict[str, Difference]) -> tuple[Step, ...]:
        """What has to happen, in order.

        Raises:
            Moved: the source is no longer what was looked at.
            OSError: a directory cannot be made.
        """
        for path, difference in accepted.items():
            check_unmoved(self._look.source, path, difference.old)
        return (
            *(self._removal(path, accepted[path]) for path in plan.removals),
            *(self._change(path, accepted[path]) for path in plan.changes),
            *(self._addition(path, accepted[path]) for path in plan.additions),
        )

    def _removal(self, path: str, difference: Difference) -> Step:
        assert difference.old is not None  # noqa: S101 - for the type checker: what is removed was there
        return Step("drop", path, self._staging.next_name(), None, Identity.of(difference.old))

    def _change(self, path: str, difference: Difference) -> Step:
        old, new = difference.old, difference.new
        assert old is not None and new is not None  # noqa: S101, PT018 - for the type checker: both sides are there
        if changes_mode_only(difference):
            before, after = stat.S_IMODE(old.st_mode), stat.S_IMODE(new.st_mode)
            wanted = after & 0o777 | before & after & 0o7000
            return Step("mode", path, "", None, Identity.of(old), (before, wanted), difference.change.digest)
        ready = self._ready[path]
        modes = (stat.S_IMODE(old.st_mode), self._mode(difference))
        return Step("swap", path, ready.staged, self._staged(ready), Identity.of(old), modes, ready.digest)

    def _addition(self, path: str, difference: Difference) -> Step:
        # The owner can always work in a directory, or an apply could not fill it.
        mode = self._mode(difference)
        if difference.change.type == "directory":
            mode |= 0o700
            ready = Prepared(self._staging.add_directory(mode, self._owner(path, None)), None)
        else:
            ready = self._ready[path]
        return Step("put", path, ready.staged, self._staged(ready), None, (0, mode), ready.digest)

    def _staged(self, ready: Prepared) -> Identity:
        return Identity.of(self._staging.look(ready.staged))


def changes_mode_only(difference: Difference) -> bool:
    """A file with a second name, maybe elsewhere, is replaced: its bits belong to both names."""
    return difference.change.kind == "mode" and difference.old is not None and difference.old.st_nlink == 1


def check_unmoved(source: Tree, path: str, old: os.stat_result | None) -> None:
    """Raises Moved when the source has something else at a path than it had."""
    now = source.stat(path)
    if (now is None) != (old is None):
        raise Moved(path)
    if now is None or old is None or (stat.S_ISDIR(now.st_mode) and now.st_ino == old.st_ino):
        return
    if (Identity.of(now), now.st_mode, now.st_ctime_ns) != (Identity.of(old), old.st_mode, old.st_ctime_ns):
        raise Moved(path)
