"""Checkpoints: every Python context writes its variables inside the wall, then they count all at once."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from ..errors import AtollError, Busy, DiskFull, InvalidInput, ProtocolError, SandboxGone
from ..policy.text import shown
from ..types import Checkpoint
from . import answers, contextqueue
from .links import Links
from .record import Record

_LEAST, _RATE = 5.0, 50 << 20
"""Seconds for the variables of all contexts, beside what cells are waited for, and bytes of the sandbox's memory that
each more is for: honest variables are written faster, and hostile ones shall not hold up a snapshot for minutes."""

_MARGIN = 5.0
"""Of a context's time: for it to say how it went."""

_MOST = 64
_REASON = 300
_LOOK = 0.02
_MAX_WAIT = 86400.0


class _Tally:
    """What was kept and what was not."""

    def __init__(self) -> None:
        self.saved = 0
        self.lost: dict[str, str] = {}

    def lose(self, lost: Mapping[str, Any], prefix: str = "") -> None:
        for name, why in lost.items():
            self.lost[prefix + name] = answers.text({"why": why}, "why")

    def add(self, context: str, report: answers.Answer) -> None:
        self.saved += max(0, answers.integer(report, "saved"))
        self.lose(answers.mapping(report, "lost"), f"{context}/")
        more = answers.integer(report, "more")
        if more > 0:
            self.lost[f"{context}/…"] = f"{more} more variables could not be kept"


def check_wait(wait: object) -> float:
    """Raises InvalidInput."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= _MAX_WAIT:
        raise InvalidInput(f"wait is {shown(wait)}; give seconds from 0 to {_MAX_WAIT:g}.")
    return float(wait)


async def checkpoint(
    links: Links, wait: float, memory: int, *, leave_busy: bool = False, durable: bool = True, partial: bool = False
) -> Checkpoint:
    """Have all contexts keep their variables. What cannot be kept is named: variables, threads, processes.

    Args:
        memory: how much the sandbox may have, in bytes: it decides how long all of it may take.
        leave_busy: a context whose cell runs on after `wait`, or that does not get done in time, is named as lost,
            instead of ending it all.
        durable: wait until all of it is on disk.
        partial: name variables as lost that the sandbox's disk has no room for, instead of ending it all.

    Raises:
        Busy: a cell still runs.
        DiskFull: the sandbox has no room for it.
        AtollError: what went wrong; the last checkpoint stays.
    """
    until = monotonic() + wait
    end = until + _LEAST + memory / _RATE
    begun = await links.ask("checkpoint", act="begin")
    generation = answers.text(begun, "generation")
    tally, files = _Tally(), dict[str, str]()
    wishes = {"durable": durable, "partial": partial}
    tally.lose(answers.mapping(begun, "lost"))
    if not generation:
        return Checkpoint(0, tally.lost)
    contexts = answers.items(begun, "contexts")
    if len(contexts) > _MOST:
        raise ProtocolError(f"The guest has {len(contexts)} contexts.")
    used = [context for context in contexts if answers.flag(context, "used")]
    for number, context in enumerate(used, 1):
        name = answers.text(context, "name")
        if answers.text(context, "language") != "python":
            tally.lost[name] = "only Python contexts keep their variables"
            continue
        try:
            # Of the time that is left one has half, unless it is the last: the others are to have some, too.
            now = monotonic()
            own = end if number == len(used) else now + max(0.0, end - now) / 2
            report = await _keep(links, name, answers.text(context, "file"), wishes, wait, until, own)
        except (SandboxGone, DiskFull):
            raise
        except AtollError as error:
            if not leave_busy:
                raise
            tally.lost[name] = f"{str(error)[:_REASON]} What it had at the last checkpoint is kept, if there was one."
        else:
            tally.add(name, report)
            files[name] = answers.text(report, "file")
    await links.ask("checkpoint", act="commit", generation=generation, files=files, durable=durable)
    return Checkpoint(tally.saved, tally.lost)


async def _keep(
    links: Links, name: str, file: str, wishes: Mapping[str, bool], wait: float, until: float, end: float
) -> dict[str, Any]:
    """Its answer's `file` is the one that counts: not `file`, where nothing has changed since the last.

    Raises:
        Busy: its cell runs on after `until`, for which `wait` was said, or it was not done at `end`.
        AtollError: what the context says went wrong.
    """
    if not await _is_free(links, name, until):
        why = f"A cell was still running in the context {shown(name)} after {wait:g} s."
        raise Busy(why, hint="Wait longer, or interrupt it.")
    left = end - monotonic()
    if left <= 0:
        raise Busy(f"The variables of the context {shown(name)} could not be kept: others took all the time.")
    told = left - min(_MARGIN, left / 4)
    request = {"do": "freeze", "file": file, "seconds": told, **wishes}
    # Another cell may have begun since: it is not waited for either.
    report, _ = await contextqueue.ask(links, name, request, timeout=left, wait=max(0.0, until - monotonic()))
    if not isinstance(report.get("file"), str):
        raise Busy(f"The context {shown(name)} did not say in time what it has kept, and was ended.")
    return report


async def _is_free(links: Links, context: str, until: float) -> bool:
    """Whether no cell runs in it, now or within the time."""
    while await _is_busy(links, context):
        if monotonic() >= until:
            return False
        await links.io.sleep(_LOOK)
    return True


async def _is_busy(links: Links, context: str) -> bool:
    for item in answers.items(await links.ask("contexts"), "contexts"):
        if answers.text(item, "name") == context:
            return answers.flag(item, "busy")
    raise ProtocolError(f"The guest no longer knows its context {shown(context)}.")


async def before_stop(record: Record, links: Links, wait: float) -> Checkpoint:
    """Keep what can be kept of a sandbox that is about to stop. Nothing that goes wrong holds that up."""
    try:
        status = await record.judge()
        if status == "paused":
            await record.resume()
        elif status != "running":
            return Checkpoint()
        return await checkpoint(links, wait, record.info.spec.resources.memory, leave_busy=True, partial=True)
    except SandboxGone:
        return Checkpoint()  # who is too late to stop it learns that from the driver
    except AtollError as error:
        return Checkpoint(0, {"all contexts": str(error)})
