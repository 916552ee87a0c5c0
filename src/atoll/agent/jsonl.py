"""A run as lines of JSON, one for each thing that happened, in the order in which things began. Pure.

Types: "run" (how it began), "model" (what a model was told and said), "tool", "query" and "part" (what code asked of a
model, and of a run of its own, whose lines follow), "check", "note", and "end" (how the run stands).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .limits import Spent
from .records import Recorded, images_of, spent_by, spent_in, whole
from .rows import Step
from .times import iso

_TYPES = {"run": "part"}


def jsonl(tree: Recorded) -> Iterator[str]:
    """The lines, without their ends."""
    for line in lines(tree):
        yield json.dumps(whole(line), ensure_ascii=False, separators=(",", ":"))


def lines(tree: Recorded) -> Iterator[dict[str, Any]]:
    run = tree.run
    yield {
        "type": "run",
        "run": run.id,
        "kind": run.kind,
        "parent": run.parent,
        "parent_step": run.parent_key,
        "forked_from": None if run.origin is None else {"run": run.origin, "step": run.origin_number},
        "time": iso(run.created),
        "model": tree.model,
        "system": run.settings.get("system"),
        "prompt": tree.task,
        "tools": [str(tool.get("function", {}).get("name")) for tool in run.settings.get("tools") or []],
        "limits": run.settings.get("limits"),
    }
    parts = {part.run.id: part for part in tree.parts}
    for step in tree.steps:
        yield step_line(step)
        part = parts.pop(str(step.request.get("run")), None) if step.kind == "run" else None
        if part is not None:
            yield from lines(part)
    for part in parts.values():
        yield from lines(part)
    yield end_line(tree)


def step_line(step: Step) -> dict[str, Any]:
    """One step, as far as it has got: `ended` and what came of it are null while it is under way or in doubt."""
    return {
        "type": _TYPES.get(step.kind, step.kind),
        "run": step.run,
        "step": step.number,
        "key": step.key,
        "parent": step.parent,
        "name": step.name,
        "time": iso(step.began),
        "ended": None if step.ended is None else iso(step.ended),
        "seconds": None if step.ended is None else round(step.ended - step.began, 6),
        "tries": step.tries,
        "snapshot": step.snapshot,
        **_DETAILS.get(step.kind, _plain)(step),
    }


def end_line(tree: Recorded) -> dict[str, Any]:
    result = tree.result
    return {
        "type": "end",
        "run": tree.run.id,
        "state": tree.state,
        "time": iso(tree.run.updated),
        "seconds": round(tree.run.updated - tree.run.created, 6),
        "response": result.get("response"),
        "limit": result.get("limit"),
        "error": result.get("error"),
        "validated": result.get("validated"),
        **_usage(spent_by(tree)),
    }


def _model(step: Step) -> dict[str, Any]:
    reply = (step.outcome or {}).get("reply") or {}
    return {
        "prompts": step.request.get("added"),
        "response": reply.get("text"),
        "reasoning": reply.get("reasoning"),
        "refusal": reply.get("refusal"),
        "tool_calls": reply.get("tool_calls"),
        "finish": reply.get("finish"),
        "model": reply.get("model"),
        "attempts": reply.get("attempts"),
        **_usage(spent_in(step) if step.outcome is not None else None),
    }


def _tool(step: Step) -> dict[str, Any]:
    outcome = step.outcome or {}
    return {
        "id": step.request.get("id"),
        "arguments": step.request.get("arguments"),
        "result": outcome.get("text"),
        "failed": outcome.get("failed"),
        "final": outcome.get("final"),
        "images": [mime for mime, _ in images_of(step)],
    }


def _query(step: Step) -> dict[str, Any]:
    outcome = step.outcome or {}
    return {
        "prompt": step.request.get("prompt"),
        "response": outcome.get("text"),
        "model": (outcome.get("reply") or {}).get("model"),
        **_usage(spent_in(step) if step.outcome is not None else None),
    }


def _part(step: Step) -> dict[str, Any]:
    outcome = step.outcome or {}
    return {
        "child": step.request.get("run"),
        "prompt": step.request.get("prompt"),
        "context": step.request.get("context"),
        "response": outcome.get("text"),
        "state": outcome.get("state"),
        **_usage(spent_in(step) if step.outcome is not None else None),
    }


def _check(step: Step) -> dict[str, Any]:
    outcome = step.outcome or {}
    return {"check": step.request, "passed": outcome.get("passed"), "reason": outcome.get("text")}


def _plain(step: Step) -> dict[str, Any]:
    return {"request": step.request, "outcome": step.outcome}


_DETAILS = {"model": _model, "tool": _tool, "query": _query, "run": _part, "check": _check}


def _usage(spent: Spent | None) -> dict[str, Any]:
    """`cost` is in dollars, and null where it is not known."""
    if spent is None:
        return {"usage": None, "cost": None}
    return {"usage": {name: getattr(spent, name) for name in Spent._fields[:3]}, "cost": spent.cost}
