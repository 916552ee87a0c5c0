"""A run from the moment that this process has it to its end: the lease is renewed, a cancellation heard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..errors import LeaseLost, StoreError
from . import ground
from .journal import FINAL, LEASE, Hold, Journal
from .kit import Kit
from .session import Ending, Session

if TYPE_CHECKING:
    import anyio

_LOOK = 0.2
_RENEW = LEASE / 4
_CANCELLED = "It was cancelled."


class _Watch:
    """Keeps the lease, and hears of a cancellation by another task or process."""

    def __init__(self, journal: Journal, hold: Hold) -> None:
        self._journal = journal
        self._hold = hold
        self.cancelled = False
        self.lost: LeaseLost | None = None

    async def keep(self, scope: anyio.CancelScope) -> None:
        import anyio

        renewed = time.monotonic()
        try:
            while not self.cancelled:
                await anyio.sleep(_LOOK)
                if time.monotonic() - renewed > _RENEW:
                    self._journal.renew(self._hold)
                    renewed = time.monotonic()
                self.cancelled = self._journal.is_cancelled(self._hold)
        except LeaseLost as error:
            self.lost = error
        except StoreError:
            return  # the next step meets it, and tells it
        scope.cancel()


async def conduct(journal: Journal, hold: Hold, kit: Kit) -> None:
    """Work on a run until it has ended; how, is in the journal then.

    Raises:
        ModelError, AtollError: it cannot go on now; the journal says why, and it can be resumed.
        LeaseLost: another process has taken it over.
    """
    import anyio

    settled = False
    run = journal.run(hold.run)
    if run.fence > 1 and not run.settings["sandbox"].get("lent"):
        await ground.sweep(hold.run, but=run.sandbox)
    session = Session(journal, hold, run, kit)
    watch = _Watch(journal, hold)
    ending: Ending | None = None
    failure: Exception | None = None
    try:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(watch.keep, scope)
                try:
                    ending = await session.play()
                except Exception as error:  # noqa: BLE001  # raised again below, bare
                    failure = error
                group.cancel_scope.cancel()
        if watch.lost is not None or isinstance(failure, LeaseLost):
            settled = True
            raise watch.lost or failure or AssertionError
        if failure is not None and not watch.cancelled:
            raise failure
        if ending is None:
            ending = Ending("cancelled", session.best, error=_CANCELLED)
        with anyio.CancelScope(shield=True):
            await session.ground.close()
            journal.finish(hold, ending.state, _result(session, ending))
            settled = True
            await end_parts(journal, hold.run)
    finally:
        session.ground.leave()
        if not settled:
            why = "It was interrupted." if failure is None else f"{type(failure).__name__}: {failure}"
            journal.release(hold, _result(session, Ending("running", session.best, error=why)))
    session.steps.tell("done", text=ending.state)


async def end_parts(journal: Journal, run: str) -> None:
    """Cancel what helpers a run has left behind, with their sandboxes."""
    for part in journal.parts(run):
        if part.state not in FINAL:
            journal.request_cancel(part.id)
            await ground.sweep(part.id)
        await end_parts(journal, part.id)


def _result(session: Session, ending: Ending) -> dict[str, Any]:
    kept = bool(session.settings.get("keep")) or session.ground.lent
    return {
        **ending._asdict(),
        "spent": session.ledger.spent().to_json(),
        "known_cost": session.ledger.known_cost,
        "sandbox": session.ground.id if kept else None,
    }
