"""A run as an Agent Trajectory, the interchange format of Harbor: ATIF v1.8. Pure.

What the format has no place for is in `extra`: keys that it does not know are forbidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .records import Recorded, calls_of, images_of, inside, spent_by, spent_in, whole
from .rows import Step
from .times import iso

VERSION = "ATIF-v1.8"
Picture = Callable[[Step, int], str | None]
"""Where a picture of a step is, if it is in a file: by the step, and its number there."""

_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))


def atif(tree: Recorded, picture: Picture | None = None) -> dict[str, Any]:
    """The trajectory of a run, with those of its parts, as JSON values.

    Args:
        picture: where pictures are; without it they are counted and left out.
    """
    import atoll

    document = _trajectory(tree, tree.run.id, atoll.__version__, picture or (lambda *_: None))
    value: dict[str, Any] = whole(document)
    return value


def _trajectory(tree: Recorded, session: str, version: str, picture: Picture) -> dict[str, Any]:
    run = tree.run
    steps = [*_opening(tree), *_turns(tree, picture)]
    for number, step in enumerate(steps):
        step["step_id"] = number + 1
    agent = {
        "name": "atoll",
        "version": version,
        "model_name": tree.model,
        "tool_definitions": run.settings.get("tools") or None,
        "extra": {"kind": run.kind, "limits": run.settings.get("limits")},
    }
    return _filled(
        schema_version=VERSION,
        session_id=session,
        trajectory_id=run.id,
        agent=_filled(**agent),
        steps=steps,
        notes="The totals of final_metrics include the calls that code in cells made, and those of subagents.",
        final_metrics=_final_metrics(tree, len(steps)),
        subagent_trajectories=[_trajectory(part, session, version, picture) for part in tree.parts] or None,
        extra=_about(tree),
    )


def _about(tree: Recorded) -> dict[str, Any]:
    run, result = tree.run, tree.result
    forked = None if run.origin is None else {"trajectory_id": run.origin, "step": run.origin_number}
    return _filled(
        state=tree.state,
        created=iso(run.created),
        ended=None if tree.ended is None else iso(tree.ended),
        response=result.get("response"),
        limit=result.get("limit"),
        error=result.get("error"),
        validated=result.get("validated"),
        forked_from=forked,
        parent=None if run.parent is None else {"trajectory_id": run.parent, "key": run.parent_key},
    )


def _final_metrics(tree: Recorded, steps: int) -> dict[str, Any]:
    spent = spent_by(tree)
    return _filled(
        total_prompt_tokens=spent.prompt_tokens,
        total_completion_tokens=spent.completion_tokens,
        total_cached_tokens=spent.cached_tokens,
        total_cost_usd=spent.cost,
        total_steps=steps,
        extra=None if spent.cost is not None else {"cost_is_known": False},
    )


def _opening(tree: Recorded) -> list[dict[str, Any]]:
    """What every conversation begins with, also one whose model was never asked."""
    when = iso(tree.run.created)
    copied = _copied(tree, 0)
    system = tree.run.settings.get("system")
    opening = [{"source": "system", "message": str(system)}] if system else []
    return [
        _filled(timestamp=when, is_copied_context=copied, **each)
        for each in [*opening, {"source": "user", "message": tree.task}]
    ]


def _turns(tree: Recorded, picture: Picture) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    before: Step | None = None
    for step in tree.steps:
        if step.kind == "model":
            found += _told(tree, step, before)
            if step.outcome is not None:
                found.append(_agent_step(tree, step, picture))
            before = step
        elif step.kind in ("check", "note"):
            found.append(_system_step(tree, step))
    return found


def _told(tree: Recorded, step: Step, before: Step | None) -> list[dict[str, Any]]:
    """What the model heard before this reply, but for what stands as the observation of the step before."""
    if before is None:
        return [_message(tree, step, each) for each in step.request.get("added", [])[2:]]
    added = [each for each in step.request.get("added", []) if each.get("role") != "tool"]
    if any(str(call.request.get("id", "")).startswith("block-") for call in calls_of(tree, before)):
        added = added[1:]
    return [_message(tree, step, each) for each in added]


def _message(tree: Recorded, step: Step, message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    return _filled(
        timestamp=iso(step.began),
        source="system" if message.get("role") == "system" else "user",
        message=content if isinstance(content, str) else json.dumps(content),
        is_copied_context=_copied(tree, step.number),
        extra={"author": "atoll"},
    )


def _system_step(tree: Recorded, step: Step) -> dict[str, Any]:
    outcome = step.outcome or {}
    verdict = "passed" if outcome.get("passed") else "failed" if step.outcome is not None else "is not at its end"
    text = f"The check of the answer {verdict}." if step.kind == "check" else str(step.request.get("text", step.name))
    reason = f"\n{outcome['text']}" if outcome.get("text") else ""
    return _filled(
        timestamp=iso(step.began),
        source="system",
        message=text + reason,
        is_copied_context=_copied(tree, step.number),
        extra={**_facts(step), "kind": step.kind, "request": step.request},
    )


def _agent_step(tree: Recorded, step: Step, picture: Picture) -> dict[str, Any]:
    reply = (step.outcome or {}).get("reply", {})
    calls = calls_of(tree, step)
    wanted = reply.get("tool_calls", [])
    ids = _ids(wanted, calls, step)
    return _filled(
        timestamp=iso(step.began),
        source="agent",
        model_name=reply.get("model") or tree.model,
        message=reply.get("text") or reply.get("refusal") or "",
        reasoning_content=reply.get("reasoning"),
        tool_calls=_tool_calls(wanted, calls, step, ids) or None,
        observation={"results": _results(tree, calls, ids, picture)} if any(call.outcome for call in calls) else None,
        metrics=_metrics(step, reply),
        is_copied_context=_copied(tree, step.number),
        llm_call_count=1,
        extra=_filled(**_facts(step), finish=reply.get("finish"), refusal=reply.get("refusal")),
    )


def _ids(wanted: list[dict[str, Any]], calls: list[Step], step: Step) -> dict[str, str]:
    """What each call is called, by its key: as the model called it, if it did. Some give no ids, and some the same."""
    given = {call.key: str(call.request.get("id") or "") for call in calls}
    given |= {f"{step.key}.t{index}": str(call.get("id") or "") for index, call in enumerate(wanted)}
    names = list(given.values())
    return {key: id if id and names.count(id) == 1 else key for key, id in given.items()}


def _tool_calls(
    wanted: list[dict[str, Any]], calls: list[Step], step: Step, ids: dict[str, str]
) -> list[dict[str, Any]]:
    """What the model called; of what it wrote as blocks of code, what was made of these."""
    begun = {call.key: call for call in calls}
    found = []
    for index, call in enumerate(wanted):
        key = f"{step.key}.t{index}"
        done = begun.pop(key, None)
        arguments = _arguments(call.get("arguments"))
        facts = {"not_done": True} if done is None else _facts(done)
        raw = {} if arguments is not None else {"raw_arguments": call.get("arguments")}
        found.append(_tool_call(ids[key], str(call["name"]), arguments, {**facts, **raw}))
    for each in begun.values():
        given = each.request.get("arguments")
        found.append(_tool_call(ids[each.key], each.name, given if isinstance(given, dict) else None, _facts(each)))
    return found


def _tool_call(id: str, name: str, arguments: dict[str, Any] | None, extra: dict[str, Any]) -> dict[str, Any]:
    return {"tool_call_id": id, "function_name": name, "arguments": arguments or {}, "extra": extra}


def _arguments(text: object) -> dict[str, Any] | None:
    """As the model meant them, or None for what it wrote that is no JSON object."""
    if not text:
        return {}
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _results(tree: Recorded, calls: list[Step], ids: dict[str, str], picture: Picture) -> list[dict[str, Any]]:
    found = []
    for call in calls:
        if call.outcome is None:
            continue
        below = inside(tree, call)
        refs = [{"trajectory_id": str(each.request["run"])} for each in below if each.kind == "run"]
        known = {part.run.id for part in tree.parts}
        extra = _filled(
            failed=call.outcome.get("failed") or None,
            final=call.outcome.get("final"),
            lost=call.outcome.get("lost"),
            outcome_unknown=call.outcome.get("unknown"),
            queries=[_query(each) for each in below if each.kind == "query"] or None,
            images=[mime for mime, _ in images_of(call)] or None,
        )
        found.append(
            _filled(
                source_call_id=ids[call.key],
                content=_content(call, picture),
                subagent_trajectory_ref=[ref for ref in refs if ref["trajectory_id"] in known] or None,
                extra=extra or None,
            )
        )
    return found


def _content(call: Step, picture: Picture) -> str | list[dict[str, Any]]:
    text = str((call.outcome or {}).get("text", ""))
    parts = []
    for index, (mime, _) in enumerate(images_of(call)):
        path = picture(call, index) if mime in _IMAGES else None
        if path is not None:
            parts.append({"type": "image", "source": {"media_type": mime, "path": path}})
    return [{"type": "text", "text": text}, *parts] if parts else text


def _query(step: Step) -> dict[str, Any]:
    outcome = step.outcome or {}
    reply = outcome.get("reply", {})
    return _filled(
        prompt=step.request.get("prompt"),
        text=outcome.get("text"),
        model_name=reply.get("model"),
        metrics=_metrics(step, reply) if step.outcome is not None else None,
        **_facts(step),
    )


def _metrics(step: Step, reply: dict[str, Any]) -> dict[str, Any]:
    spent = spent_in(step)
    return _filled(
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cached_tokens=spent.cached_tokens,
        cost_usd=spent.cost,
        extra=_filled(
            tokens_are_estimated=True if reply.get("usage") is None else None,
            attempts=reply.get("attempts") if (reply.get("attempts") or 1) > 1 else None,
        )
        or None,
    )


def _facts(step: Step) -> dict[str, Any]:
    took = None if step.ended is None else round(step.ended - step.began, 6)
    return _filled(
        step=step.number,
        key=step.key,
        seconds=took,
        snapshot=step.snapshot,
        tries=step.tries if step.tries > 1 else None,
        in_doubt=True if step.outcome is None else None,
    )


def _copied(tree: Recorded, number: int) -> bool | None:
    """Whether a step was done by the run that this one was forked from."""
    at = tree.run.origin_number
    return True if tree.run.origin is not None and at is not None and number <= at else None


def _filled(**fields: Any) -> dict[str, Any]:
    """Without what is not known: an empty place says so."""
    return {name: value for name, value in fields.items() if value is not None}
