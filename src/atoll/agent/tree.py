"""A run as a tree of lines, with times, tokens and cost. Pure.

What is in the lines was said by models and by code: whoever prints them makes control characters visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from .limits import Spent
from .records import Recorded, images_of, spent_by, spent_in
from .rows import Step

_LONGEST = 72
_BRANCH, _LAST, _PIPE, _GAP = "├─ ", "└─ ", "│  ", "   "


class Line(NamedTuple):
    """`tone` says how to paint it: "plain", "bad", "faint", or "head"."""

    text: str
    tone: str = "plain"


def tree_lines(tree: Recorded, *, full: bool = False) -> list[Line]:
    """The run and all that happened in it; with `full`, everything that was said, and not only its first line."""
    return list(_run(tree, "", full=full))


def heading(tree: Recorded) -> str:
    """The run in one line, without its task."""
    since = (tree.ended or tree.run.updated) - tree.run.created
    forked = f"  forked from {tree.run.origin} at {tree.run.origin_number}" if tree.run.origin else ""
    return f"{tree.run.id}  {tree.state}  {tree.model}  {seconds(since)}  {money(spent_by(tree))}{forked}"


def brief(text: str, most: int = _LONGEST) -> str:
    """The first line that says something, cut to a length that fits."""
    first = next((line.strip() for line in text.split("\n") if line.strip()), "")
    rest = len(text.strip()) > len(first)
    return first[: most - 1] + "…" if len(first) > most else f"{first} …" if rest else first


def seconds(time: float) -> str:
    if time >= 60:
        return f"{int(time // 60)}m{int(time % 60):02d}s"
    return f"{time:.1f}s" if time >= 1 else f"{time * 1000:.0f}ms"


def money(spent: Spent) -> str:
    """Tokens in and out, and dollars; a question mark where they are not known."""
    cost = "$?" if spent.cost is None else f"${spent.cost:.4f}"
    return f"{spent.prompt_tokens}+{spent.completion_tokens} tokens  {cost}"


def step_line(step: Step) -> Line:
    """One step in one line."""
    failed = _failed(step)
    parts = [f"{step.number}", step.name]
    if step.ended is not None:
        parts.append(seconds(max(step.ended - step.began, 0.0)))
    if step.kind in ("model", "query", "run") and step.outcome is not None:
        parts.append(money(spent_in(step)))
    if step.tries > 1:
        parts.append(f"begun {step.tries} times")
    asked, said = _asked(step), _said(step)
    parts.append(f"{brief(asked)}  → {brief(said)}" if asked and said is not None else brief(asked or said or ""))
    if step.outcome is None:
        parts.append("(not at its end)")
    text = "  ".join(part for part in parts if part)
    return Line(text, "bad" if failed else "faint" if step.outcome is None else "plain")


def _run(tree: Recorded, indent: str, *, full: bool) -> Iterator[Line]:
    yield Line(f"{indent}{heading(tree)}", "head")
    yield from _block(tree.task, indent, full=full)
    top = [step for step in tree.steps if step.parent is None]
    ending = list(_ending(tree))
    for index, step in enumerate(top):
        yield from _step(tree, step, indent, last=index == len(top) - 1 and not ending, full=full)
    for index, line in enumerate(ending):
        mark = _LAST if index == len(ending) - 1 else _BRANCH
        below = _GAP if index == len(ending) - 1 else _PIPE
        label, text = line
        if not full:
            yield Line(f"{indent}{mark}{label}: {brief(text)}", "bad" if label != "answer" else "plain")
            continue
        yield Line(f"{indent}{mark}{label}:", "bad" if label != "answer" else "plain")
        yield from _block(text, indent + below, full=True)


def _ending(tree: Recorded) -> Iterator[tuple[str, str]]:
    result = tree.result
    if result.get("error"):
        yield str(result.get("limit") or "error"), str(result["error"])
    if result.get("response"):
        yield "answer", str(result["response"])


def _step(tree: Recorded, step: Step, indent: str, *, last: bool, full: bool) -> Iterator[Line]:
    line = step_line(step)
    below = indent + (_GAP if last else _PIPE)
    yield Line(f"{indent}{_LAST if last else _BRANCH}{line.text}", line.tone)
    if full:
        yield from _everything(step, below)
    children = [each for each in tree.steps if each.parent == step.key]
    for index, child in enumerate(children):
        yield from _step(tree, child, below, last=index == len(children) - 1, full=full)
    if step.kind == "run":
        for part in tree.parts:
            if part.run.id == step.request.get("run"):
                yield from _run(part, below, full=full)


def _everything(step: Step, indent: str) -> Iterator[Line]:
    for label, text in (("asked", _asked(step)), ("said", _said(step))):
        if text:
            yield Line(f"{indent}{label}:", "faint")
            yield from _block(text, indent + _GAP, full=True)
    if step.snapshot is not None:
        yield Line(f"{indent}snapshot: {step.snapshot}", "faint")


def _block(text: str, indent: str, *, full: bool) -> Iterator[Line]:
    if not full:
        yield Line(f"{indent}{brief(text, 100)}", "faint")
        return
    for line in text.rstrip("\n").split("\n"):
        yield Line(f"{indent}{line}", "faint")


def _failed(step: Step) -> bool:
    outcome = step.outcome or {}
    if step.kind == "check":
        return step.outcome is not None and not outcome.get("passed")
    return bool(outcome.get("failed")) or (step.kind == "run" and outcome.get("state") not in (None, "completed"))


def _asked(step: Step) -> str:
    request = step.request
    if step.kind == "tool":
        return _arguments(request.get("arguments"))
    if step.kind in ("query", "run"):
        return str(request.get("prompt", ""))
    if step.kind == "model":
        return ""
    return str(request.get("text") or request.get("command") or request.get("code") or "")


def _said(step: Step) -> str | None:
    if step.outcome is None:
        return None
    if step.kind == "model":
        return _reply(step.outcome.get("reply") or {})
    text = str(step.outcome.get("text") or "")
    if step.kind == "check":
        return text or ("passed" if step.outcome.get("passed") else "failed")
    images = images_of(step)
    return f"{text}\n[{len(images)} pictures]" if images else text


def _reply(reply: dict[str, Any]) -> str:
    calls = ", ".join(str(call.get("name")) for call in reply.get("tool_calls") or [])
    text = str(reply.get("text") or reply.get("refusal") or "")
    return f"{text}\n→ {calls}" if calls and text.strip() else f"→ {calls}" if calls else text


def _arguments(given: object) -> str:
    """The one argument, if there is one, else all of them."""
    if isinstance(given, dict):
        if len(given) == 1:
            (value,) = given.values()
            return value if isinstance(value, str) else json.dumps(value)
        return json.dumps(given, ensure_ascii=False) if given else ""
    return "" if given is None else str(given)
