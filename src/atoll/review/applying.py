"""Taking changes over into the source: all that was accepted, or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from ..errors import InvalidInput, file_error
from ..policy.text import shown
from ..types import Applied, Change
from .commit import Moved
from .comparing import Difference
from .holding import hold
from .journal import Journal, Ledger
from .links import together
from .looking import Look
from .planning import Plan, Planner
from .points import reached
from .preparing import Preparation
from .recovery import carry_out, clear, recover, recover_locked
from .selection import check_selection, is_within
from .stage import Stage
from .staging import Staging, make_staging
from .verdicts import conflict, refusal

OnConflict = Literal["ask", "keep", "take"]

_ATTEMPTS = 3
_RESTLESS = "It changes in the source while it is applied."
_UNCHANGED = "It has not changed."


def changes(stage: Stage, *, text: bool = True, paths: Iterable[object] | None = None) -> list[Change]:
    """What differs between the sandbox and its source, by path.

    Args:
        text: whether to make diffs.
        paths: only these, and what is below them.

    Raises:
        InvalidInput: the paths make no sense.
        SandboxError: more has changed than anybody can review.
        Busy: an apply to this source is under way.
        FileError: the source cannot be opened.
        OSError: the files of the sandbox are gone.
    """
    wanted = check_selection(paths)
    recover(stage.source, stage.state)
    with Look(stage) as look:
        return [difference.change for difference in look.differences(wanted, text=text)]


def apply(
    stage: Stage,
    paths: Iterable[object] | None = None,
    on_conflict: OnConflict = "ask",
    reviewed: Sequence[Change] | None = None,
    *,
    new_hidden: bool = False,
) -> Applied:
    """Take over what the sandbox has changed, as far as the rules allow: all of it at once, or nothing.

    Args:
        paths: only these, and what is below them.
        on_conflict: what to do about paths that have changed in the source too. With "ask" nothing at all is applied
            when there is one, "keep" keeps what the source has, "take" takes what the sandbox has.
        reviewed: what somebody has looked at; anything else is refused.
        new_hidden: whether to take over hidden files and directories of names that the source does not have.

    Raises:
        InvalidInput: an argument makes no sense.
        SandboxError: more has changed than anybody can review.
        Busy: another apply to this source is under way.
        FileError: the source cannot be opened or written to; it is as it was.
        StoreError: the state directory cannot be used, or a directory was moved out of the source meanwhile.
        OSError: the files of the sandbox are gone.
    """
    if on_conflict not in get_args(OnConflict):
        raise InvalidInput(f"on_conflict is {shown(on_conflict)}; give 'ask', 'keep' or 'take'.")
    wanted = check_selection(paths)
    seen = None if reviewed is None else {change.path: change for change in reviewed}
    outcome = Applied()
    with Ledger(stage.source, stage.state) as ledger:
        for _ in range(_ATTEMPTS):
            recover_locked(stage.source, ledger)
            with Look(stage) as look:
                attempt = _Attempt(look, ledger, on_conflict, seen, new_hidden=new_hidden)
                try:
                    return attempt.run(wanted)
                except Moved as error:
                    outcome = Applied(conflicts={error.path: _RESTLESS}, rejected=attempt.rejected)
    return outcome


class _Attempt:
    """One try to apply, with the lock held."""

    def __init__(
        self,
        look: Look,
        ledger: Ledger,
        on_conflict: OnConflict,
        seen: Mapping[str, Change] | None,
        *,
        new_hidden: bool,
    ) -> None:
        self._look = look
        self._ledger = ledger
        self._on_conflict = on_conflict
        self._seen = seen
        self._new_hidden = new_hidden
        self._accepted: dict[str, Difference] = {}
        self._conflicts: dict[str, str] = {}
        self.rejected: dict[str, str] = {}

    def run(self, wanted: tuple[str, ...] | None) -> Applied:
        """Raises Moved when the source changed meanwhile; nothing was applied."""
        differences = self._look.differences(wanted, text=False)
        self._tell_unchanged(wanted, differences)
        for difference in differences:
            self._judge(difference)
        if self._conflicts and self._on_conflict == "ask":
            return Applied(conflicts=self._conflicts, rejected=self.rejected)
        applied = self._carry_out() if self._accepted else ()
        return Applied(applied, self._conflicts, self.rejected)

    def _tell_unchanged(self, wanted: tuple[str, ...] | None, differences: list[Difference]) -> None:
        for path in wanted or ():
            if path and not any(is_within(each.change.path, {path}) for each in differences):
                self.rejected[path] = _UNCHANGED

    def _judge(self, difference: Difference) -> None:
        path = difference.change.path
        reason = refusal(self._look, difference, self._seen, new_hidden=self._new_hidden)
        if reason is not None:
            self.rejected[path] = reason
            return
        reason = None if self._on_conflict == "take" else conflict(self._look, difference)
        if reason is not None:
            self._conflicts[path] = reason
            return
        self._accepted[path] = difference

    def _carry_out(self) -> tuple[str, ...]:
        root = self._look.source.root
        found = os.fstat(root)
        journal = Journal("staging", (found.st_dev, found.st_ino), Staging.new_name(), self._look.stage.base)
        try:
            self._ledger.write(journal)
            reached("journal")
            try:
                ready = self._prepare(root, journal)
            except BaseException:
                clear(root, self._ledger, journal)
                raise
            self._commit(root, ready)
        except OSError as error:
            raise _source_error(error, self._look.stage.source) from error
        return tuple(sorted({step.path for step in ready.steps}))

    def _prepare(self, root: int, journal: Journal) -> Journal:
        make_staging(root, journal.staging)
        reached("staging")
        with Staging(root, journal.staging) as staging:
            preparation = Preparation(self._look, staging)
            for path in sorted(self._accepted):
                reason = preparation.stage(self._accepted[path])
                if reason is not None:
                    del self._accepted[path]
                    self.rejected[path] = reason
            plan = self._plan(preparation.links)
            if plan.removals:
                hold(self._look.merged, self._look.stage.uppers, self._look.candidates)
            steps = preparation.steps(plan, self._accepted)
            staging.sync()
        return journal._replace(phase="commit", steps=steps)

    def _plan(self, targets: Mapping[str, str]) -> Plan:
        """Without links that would lead out of the source when all the rest of it has come."""
        while True:
            plan = Planner(self._look, self._accepted, self.rejected).plan()
            comes = {path: targets.get(path) for path in self._accepted}
            reasons = {path: together(self._look.source, comes, path) for path in comes if comes[path] is not None}
            refused = {path: reason for path, reason in reasons.items() if reason is not None}
            if not refused:
                return plan
            self.rejected |= refused
            for path in refused:
                del self._accepted[path]

    def _commit(self, root: int, journal: Journal) -> None:
        self._ledger.write(journal)
        reached("commit")
        carry_out(root, self._ledger, journal)


def _source_error(error: OSError, source: str) -> OSError:
    number = error.errno or 5
    return file_error(
        number, f"The source {source} cannot be written to: {os.strerror(number)}. It is as it was.", source
    )
