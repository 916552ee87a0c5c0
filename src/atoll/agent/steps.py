"""Steps: each is done once, whatever happens to the process that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..errors import AgentError
from .events import Event, EventKind, Listener
from .journal import Hold, Journal
from .limits import Ledger, Spent
from .rows import Step

Outcome = dict[str, Any]
Act = Callable[[], Awaitable[tuple[Outcome, str | None]]]


class Steps:
    """The steps of one run. What the journal has an outcome of is not done again, and is paid for already."""

    def __init__(self, journal: Journal, hold: Hold, ledger: Ledger, depth: int, listen: Listener) -> None:
        self._journal = journal
        self._hold = hold
        self._ledger = ledger
        self._depth = depth
        self._listen = listen
        self.written = journal.steps(hold.run)
        self._known = {step.key: step for step in self.written}
        for step in self.written:
            self._account(step)
        if self.written:
            self.tell("replayed", number=len(self.written))

    def known(self, key: str) -> Step | None:
        """What the journal had of a step when this process began."""
        return self._known.get(key)

    def is_done(self, key: str) -> bool:
        step = self._known.get(key)
        return step is not None and step.outcome is not None

    async def do(
        self, key: str, kind: str, name: str, request: Mapping[str, Any], act: Act, parent: str | None = None
    ) -> Outcome:
        """What came of a step: as the journal has it, or of doing it now.

        Args:
            act: does it, and gives the outcome and the snapshot of the sandbox after it, if there is one.

        Raises:
            LeaseLost: the run belongs to another process, and the step was not done, or is not believed.
            AgentError: the journal has another step under this key.
        """
        known = self._known.get(key)
        if known is not None and known.kind != kind:
            raise AgentError(
                f"The journal of {self._hold.run} has a step {known.kind!r} where {kind!r} would be next.",
                hint="It was written by another version of atoll; begin again from an earlier step with fork.",
            )
        if known is not None and known.outcome is not None:
            return known.outcome
        number = self._journal.begin(self._hold, key, kind, name, request, parent)
        about: dict[str, Any] = {"number": number, "key": key, "step": kind, "name": name, "request": request}
        self.tell("began", **about, parent=parent)
        try:
            outcome, snapshot = await act()
        except Exception:
            # It did not happen: there was no room for it, or no model. A tool may have had its effect, and is in doubt.
            if kind != "tool":
                self._journal.undo(self._hold, key)
            raise
        self._journal.end(self._hold, key, outcome, snapshot)
        self.tell("ended", **about, parent=parent, outcome=outcome)
        return outcome

    def tell(self, kind: EventKind, **about: Any) -> None:
        self._listen(Event(kind, self._hold.run, self._depth, self._ledger.spent(), **about))

    def _account(self, step: Step) -> None:
        if step.kind == "tool":
            self._ledger.add_tool_call()
        if step.kind in ("query", "run"):
            self._ledger.add_subcalls(1)
        if step.outcome is not None and "spent" in step.outcome:
            self._ledger.charge(Spent.from_json(step.outcome["spent"]))
