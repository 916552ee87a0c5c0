"""A run with its steps and its parts, read from the journal at one moment, for whoever tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .journal import FINAL, Journal, state_of
from .limits import Spent
from .rows import Run, Step


class Recorded(NamedTuple):
    """`parts` are the runs that code in its cells began, oldest first."""

    run: Run
    state: str
    steps: tuple[Step, ...]
    parts: tuple[Recorded, ...] = ()

    @property
    def task(self) -> str:
        return str(self.run.settings.get("prompt", ""))

    @property
    def model(self) -> str:
        return str(self.run.settings.get("model", ""))

    @property
    def ended(self) -> float | None:
        """When it came to its end, if it has."""
        return self.run.updated if self.state in FINAL else None

    @property
    def result(self) -> dict[str, Any]:
        return self.run.result or {}


def recorded(journal: Journal, id: str) -> Recorded:
    """Raises TrajectoryNotFound."""
    run = journal.run(id)
    parts = tuple(recorded(journal, part.id) for part in journal.parts(id))
    return Recorded(run, state_of(run), tuple(journal.steps(id)), parts)


def everyone(tree: Recorded) -> Iterator[Recorded]:
    """The run and all below it."""
    yield tree
    for part in tree.parts:
        yield from everyone(part)


def spent_by(tree: Recorded) -> Spent:
    """Tokens and dollars of a run with its parts; the cost is None where one price is not known."""
    if tree.state in FINAL and "spent" in tree.result:
        return Spent.from_json(tree.result["spent"])
    parts = {part.run.id: part for part in tree.parts}
    return total(
        spent_in(step) if step.outcome is not None or step.kind != "run" else _of_part(parts, step)
        for step in tree.steps
    )


def spent_in(step: Step) -> Spent:
    """Of one step; nothing where no model was asked in it."""
    spent = (step.outcome or {}).get("spent")
    return Spent() if spent is None else Spent.from_json(spent)


def total(spendings: Iterator[Spent] | list[Spent]) -> Spent:
    each = list(spendings)
    cost = None if any(one.cost is None for one in each) else sum(one.cost or 0.0 for one in each)
    prompt, completion, cached = (sum(getattr(one, name) for one in each) for name in Spent._fields[:3])
    return Spent(prompt, completion, cached, cost)


def calls_of(tree: Recorded, step: Step) -> list[Step]:
    """The calls of tools that a reply of the model led to, in their order."""
    return [each for each in tree.steps if each.kind == "tool" and each.key.startswith(f"{step.key}.")]


def inside(tree: Recorded, step: Step) -> list[Step]:
    """What code did in a step: questions to models, and runs of its own."""
    return [each for each in tree.steps if each.parent == step.key]


def images_of(step: Step) -> list[tuple[str, str]]:
    """Pairs of a MIME type and base64."""
    return [(str(mime), str(data)) for mime, data in (step.outcome or {}).get("images", [])]


def whole(value: Any) -> Any:
    """The same without what JSON cannot carry to everybody: half surrogate pairs, and numbers that are none."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not _is_whole(value) else value
    if isinstance(value, float) and value - value != 0.0:
        return str(value)
    if isinstance(value, dict):
        return {whole(str(key)): whole(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [whole(each) for each in value]
    return value


def _is_whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _of_part(parts: dict[str, Recorded], step: Step) -> Spent:
    part = parts.get(str(step.request.get("run")))
    return Spent() if part is None else spent_by(part)
