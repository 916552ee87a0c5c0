"""A run as it happens, whichever process it happens in: the journal tells it."""

from __future__ import annotations

import json
import time

from ..agent import journal
from ..agent.journal import FINAL, Journal, state_of
from ..agent.jsonl import end_line, step_line as json_line
from ..agent.records import recorded, whole
from ..agent.rows import Step
from ..agent.tree import Line, heading, step_line
from .interrupts import Interrupts
from .logs import say_line
from .output import say

_TICK = 0.1
# A run that nobody works on for so long is not about to begin.
_PATIENCE = 60.0


def follow(id: str, *, as_json: bool) -> int:
    """Tell each step when it begins and when it has ended, until the run ends or is interrupted.

    Raises:
        TrajectoryNotFound: there is none, or it is deleted meanwhile.
    """
    Interrupts()
    kept = journal.shared()
    teller = _Teller(kept, as_json=as_json)
    idle = time.monotonic()
    while True:
        # Asked before the steps are read: what is written until a run ends is then not missed.
        state = state_of(kept.run(id))
        if teller.tell(id, 0):
            idle = time.monotonic()
        if state in FINAL or state == "interrupted" or (time.monotonic() - idle > _PATIENCE and state == "waiting"):
            break
        time.sleep(_TICK)
    tree = recorded(kept, id)
    if as_json:
        _say_json(end_line(tree))
    else:
        say_line(Line(heading(tree), "head"))
        for text in (tree.result.get("error"), tree.result.get("response")):
            for line in str(text).split("\n") if text else ():
                say_line(Line(line))
    return 0


class _Teller:
    """Tells what was not told yet."""

    def __init__(self, kept: Journal, *, as_json: bool) -> None:
        self._journal = kept
        self._as_json = as_json
        self._begun: set[tuple[str, str]] = set()
        self._ended: set[tuple[str, str]] = set()
        # Every step up to this number was told to its end.
        self._behind: dict[str, int] = {}

    def tell(self, run: str, depth: int) -> bool:
        """Whether there was something to tell, of a run and its parts."""
        told = False
        complete = True
        for step in self._journal.steps(run, after=self._behind.get(run, 0)):
            told |= self._step(step, depth)
            complete = complete and step.outcome is not None
            if complete:
                self._behind[run] = step.number
        for part in self._journal.parts(run):
            told |= self.tell(part.id, depth + 1)
        return told

    def _step(self, step: Step, depth: int) -> bool:
        key = (step.run, step.key)
        began, ended = key not in self._begun, step.outcome is not None and key not in self._ended
        if began:
            self._begun.add(key)
        if ended:
            self._ended.add(key)
        if self._as_json:
            if ended:
                _say_json(json_line(step))
        elif ended or began:
            line = step_line(step)
            mark = "▸" if step.outcome is None else "✗" if line.tone == "bad" else "✓"
            nested = depth + (step.parent is not None)
            say_line(Line(f"{'   ' * nested}{mark} {line.text}", line.tone))
        return began or ended


def _say_json(value: object) -> None:
    say(json.dumps(whole(value), ensure_ascii=False, separators=(",", ":")))
