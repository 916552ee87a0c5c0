"""What comes of a run, as its user sees it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..models import Usage
from .journal import FINAL, Journal, state_of
from .limits import Spent
from .rows import Run, Step


class Result(NamedTuple):
    """How a run ended.

    `state` is "completed", "limited" (a limit was reached: `limit` names it, and `response` is the best answer so far),
    "failed" or "cancelled". `cost` is in dollars, None where the price of a call is not known; `known_cost` is what is
    known. `validated` is None where nothing was to be checked. `sandbox` is there where it was kept.
    """

    response: str
    trajectory_id: str
    state: str
    usage: Usage
    cost: float | None
    known_cost: float = 0.0
    limit: str | None = None
    error: str | None = None
    validated: bool | None = None
    sandbox: str | None = None

    @property
    def success(self) -> bool:
        return self.state == "completed"


class Status(NamedTuple):
    """How a run stands. `state` is "waiting", "running", "interrupted" (it can be resumed), or as in `Result`."""

    trajectory_id: str
    state: str
    kind: str
    task: str
    model: str
    steps: int
    iterations: int
    current: str | None
    usage: Usage
    cost: float | None
    response: str
    limit: str | None
    error: str | None
    created: float
    updated: float
    sandbox: str | None


class Trajectory(NamedTuple):
    """A run with its steps, and those of its parts."""

    id: str
    state: str
    task: str
    steps: tuple[Step, ...]
    parts: tuple[Trajectory, ...] = ()


def result_of(run: Run) -> Result:
    """Of a run that has ended."""
    result = run.result or {}
    spent = Spent.from_json(result["spent"]) if "spent" in result else Spent()
    return Result(
        result.get("response", ""), run.id, run.state, usage_of(spent), spent.cost, result.get("known_cost", 0.0),
        result.get("limit"), result.get("error"), result.get("validated"), result.get("sandbox"),
    )  # fmt: skip


def status_of(journal: Journal, run: Run) -> Status:
    steps = journal.steps(run.id)
    state = state_of(run)
    spent, result = _spent(steps), run.result or {}
    under_way = [step for step in steps if step.outcome is None]
    replies = [step for step in steps if step.kind == "model" and step.outcome]
    said = next((text for step in reversed(replies) if (text := _text(step))), "")
    return Status(
        run.id, state, run.kind, run.settings["prompt"], run.settings["model"], len(steps), len(replies),
        under_way[-1].name if under_way and state == "running" else None, usage_of(spent), spent.cost,
        result.get("response") or said, result.get("limit"), result.get("error"), run.created, run.updated,
        result.get("sandbox") if run.state in FINAL else run.sandbox,
    )  # fmt: skip


def trajectory_of(journal: Journal, run: Run) -> Trajectory:
    parts = tuple(trajectory_of(journal, part) for part in journal.parts(run.id))
    return Trajectory(run.id, state_of(run), run.settings["prompt"], tuple(journal.steps(run.id)), parts)


def usage_of(spent: Spent) -> Usage:
    return Usage(spent.prompt_tokens, spent.completion_tokens, spent.cached_tokens)


def _spent(steps: list[Step]) -> Spent:
    each = [Spent.from_json(step.outcome["spent"]) for step in steps if step.outcome and "spent" in step.outcome]
    cost = None if any(one.cost is None for one in each) else sum(one.cost or 0.0 for one in each)
    prompt, completion, cached = (sum(getattr(one, name) for one in each) for name in Spent._fields[:3])
    return Spent(prompt, completion, cached, cost)


def _text(step: Step) -> str:
    reply: dict[str, Any] = (step.outcome or {}).get("reply", {})
    return str(reply.get("text") or "")
