"""What an AsyncSandbox may do with its source, and what it has done to it."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..types import Applied, Change, Explanation, PermissionsLike

if TYPE_CHECKING:
    from .links import Links
    from .record import Record
    from .reviewing import OnConflict, Paths


class AsyncReview:
    """Part of `AsyncSandbox`."""

    _record: Record
    _links: Links

    def explain(self, path: str | os.PathLike[str]) -> Explanation:
        """The level that the rules give a path of the workspace, and the rule that gave it.

        Raises:
            InvalidInput: it is not in the workspace.
        """
        from . import permitting

        return permitting.explain(self._record.info.spec, path)

    async def set_permissions(self, permissions: PermissionsLike, *, force: bool = False) -> None:
        """Have other rules from now on, also for what runs already. None takes all rules away.

        What was opened before stays readable for who has it open, and nothing more.

        Args:
            force: end processes that have a file open to write to, rather than to refuse.

        Raises:
            Busy: a process has a file open to write to; the message names both.
            InvalidInput: a rule is wrong, or the sandbox has no source.
            Unsupported: the driver has no path permissions, or this host cannot enforce them.
        """
        from . import permitting

        await permitting.set_permissions(self._record, permissions, force=force)

    async def diff(self, paths: Paths = None, *, text: bool = True) -> builtins.list[Change]:
        """What it has changed of its source, sorted by path.

        Args:
            paths: only these files and directories.
            text: with unified diffs of text files.

        Raises:
            InvalidInput: it was made without a source.
        """
        from . import reviewing

        return await reviewing.diff(self._record, paths, text=text)

    async def apply(
        self,
        paths: Paths = None,
        *,
        on_conflict: OnConflict = "ask",
        reviewed: Sequence[Change] | None = None,
        new_hidden: bool = False,
    ) -> Applied:
        """Bring its changes to the source: what the rules let it write, and nothing else.

        A file that the source has changed meanwhile is a conflict. What is not applied is told with the reason. With
        a codebase as the source they become its next version.

        Args:
            paths: only these files and directories.
            on_conflict: "ask" applies nothing if there is a conflict, "keep" leaves the source's version of such a
                file, "take" replaces it.
            reviewed: what `diff` gave; a file that is not as it was then is rejected.
            new_hidden: take over hidden files and directories, too, whose names the source does not have yet. Tools
                may run what such files say, so look at them first.

        Raises:
            InvalidInput: it was made without a source.
        """
        from . import reviewing

        return await reviewing.apply(self._record, paths, on_conflict, reviewed, new_hidden=new_hidden)

    async def discard(self, *, force: bool = False) -> None:
        """Have the workspace as the source is now, without its changes. Variables and other places stay.

        Args:
            force: end processes that have a file open to write to, rather than to refuse.

        Raises:
            Busy: a process has a file open to write to; the message names both.
        """
        from . import reviewing

        await reviewing.discard(self._record, force=force)
