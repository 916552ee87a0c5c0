"""Runs as spans of OpenTelemetry, named as its GenAI conventions (1.41) have it. Pure.

An agent's run is `invoke_agent`, a call of a model `chat`, a call of a tool `execute_tool`. What was said is left out
unless `content` asks for it: prompts hold what their users hold dear.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .limits import Spent
from .records import Recorded, spent_by, whole

SCOPE = "atoll"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable by which OpenTelemetry's own instrumentations are told to capture what was said."""

Attributes = dict[str, Any]
_KINDS = {"internal": 1, "client": 3}


class Span(NamedTuple):
    """`parent` is the id of another span; times are seconds since 1970, `end` None for what is not at its end."""

    id: str
    parent: str | None
    name: str
    kind: str
    start: float
    end: float | None
    attributes: Attributes
    error: str | None = None


def trace_id(run: str) -> str:
    """The same each time that a run is told of, in 16 bytes."""
    return hashlib.sha256(run.encode()).hexdigest()[:32]


def span_id(run: str, key: str = "") -> str:
    return hashlib.sha256(f"{run} {key}".encode()).hexdigest()[:16]


def spans_of(tree: Recorded, *, content: bool = False, above: str | None = None) -> Iterator[Span]:
    """Of a run and all that happened in it; a parent comes before what is in it."""
    run = tree.run
    root = span_id(run.id)
    about = run_attributes(run.id, tree.model) | spent_attributes(spent_by(tree))
    if content:
        about |= _said_attributes([{"role": "user", "content": tree.task}], tree.result.get("response"))
    error = None if tree.state in ("completed", "running", "waiting") else tree.state
    if error is not None:
        about["error.type"] = tree.result.get("limit") or error
    yield Span(root, above, run_name(), "internal", run.created, tree.ended, about, error)
    parts = {part.run.id: part for part in tree.parts}
    last: dict[str, str] = {}
    for step in tree.steps:
        parent = root if step.parent is None else last.get(step.parent, root)
        if step.kind == "run":
            part = parts.get(str(step.request.get("run")))
            if part is not None:
                yield from spans_of(part, content=content, above=parent)
            continue
        last[step.key] = span_id(run.id, step.key)
        yield Span(
            last[step.key],
            parent,
            step_name(step.kind, step.name, tree.model),
            step_kind(step.kind),
            step.began,
            step.ended,
            {
                "gen_ai.conversation.id": run.id,
                **began_attributes(step.kind, step.name, step.request, tree.model, content=content),
                **ended_attributes(step.kind, step.outcome or {}, content=content),
            },
            error_of(step.kind, step.outcome or {}),
        )


def run_name() -> str:
    return f"invoke_agent {SCOPE}"


def step_name(kind: str, name: str, model: str) -> str:
    if kind in ("model", "query"):
        return f"chat {_bare(model)}"
    return f"execute_tool {name if kind == 'tool' else f'{kind} {name}'}"


def step_kind(kind: str) -> str:
    return "client" if kind in ("model", "query") else "internal"


def run_attributes(run: str, model: str) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": _provider(model),
        "gen_ai.agent.name": SCOPE,
        "gen_ai.conversation.id": run,
        "gen_ai.request.model": _bare(model),
    }


def began_attributes(kind: str, name: str, request: Mapping[str, Any], model: str, *, content: bool) -> Attributes:
    """What is known of a step before it happens."""
    if kind in ("model", "query"):
        asked = request.get("added") if kind == "model" else [{"role": "user", "content": request.get("prompt", "")}]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _provider(model),
            "gen_ai.request.model": _bare(model),
            **(_said_attributes(asked or [], None) if content else {}),
        }
    found: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
    }
    if request.get("id"):
        found["gen_ai.tool.call.id"] = str(request["id"])
    if content:
        found["gen_ai.tool.call.arguments"] = _json(request.get("arguments", request))
    return found


def ended_attributes(kind: str, outcome: Mapping[str, Any], *, content: bool) -> Attributes:
    """What is known of a step after it happened."""
    found: Attributes = {}
    reply = outcome.get("reply")
    if isinstance(reply, Mapping):
        found = {
            "gen_ai.response.model": str(reply.get("model") or ""),
            "gen_ai.response.finish_reasons": [str(reply.get("finish"))],
            **spent_attributes(Spent.from_json(outcome["spent"])),
        }
        if content:
            found |= _said_attributes([], str(reply.get("text") or ""))
    elif content and "text" in outcome:
        found["gen_ai.tool.call.result"] = str(outcome["text"])
    if (failure := error_of(kind, outcome)) is not None:
        found["error.type"] = failure
    return found


def spent_attributes(spent: Spent) -> Attributes:
    found: Attributes = {
        "gen_ai.usage.input_tokens": spent.prompt_tokens,
        "gen_ai.usage.output_tokens": spent.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": spent.cached_tokens,
    }
    # The conventions have no cost yet; an unknown one is not there, rather than zero.
    return found if spent.cost is None else {**found, "atoll.cost_usd": spent.cost}


def error_of(kind: str, outcome: Mapping[str, Any]) -> str | None:
    """The class of what went wrong in a step, if something did."""
    if kind == "check" and outcome and not outcome.get("passed"):
        return "check_failed"
    return "tool_failed" if outcome.get("failed") else None


def otlp(tree: Recorded, version: str, *, content: bool = False) -> dict[str, Any]:
    """The body of an OTLP/HTTP request in JSON, as any collector takes it at /v1/traces. What is not at its end has
    no span yet."""
    trace = trace_id(tree.run.id)
    spans = [_otlp_span(span, trace) for span in spans_of(tree, content=content) if span.end is not None]
    scoped = {"scope": {"name": SCOPE, "version": version}, "spans": spans}
    resource = {"attributes": [_attribute("service.name", SCOPE)]}
    body: dict[str, Any] = whole({"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]})
    return body


def _otlp_span(span: Span, trace: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": trace,
        "spanId": span.id,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(nanoseconds(span.start)),
        "endTimeUnixNano": str(nanoseconds(span.end or span.start)),
        "attributes": [_attribute(name, value) for name, value in span.attributes.items()],
        "status": {} if span.error is None else {"code": 2, "message": span.error},
    }
    return found if span.parent is None else {**found, "parentSpanId": span.parent}


def nanoseconds(moment: float) -> int:
    return round(moment * 1_000_000) * 1000


def _attribute(name: str, value: object) -> dict[str, Any]:
    return {"key": name, "value": _value(value)}


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def _said_attributes(asked: list[Any], said: str | None) -> Attributes:
    """Messages in the form of the conventions."""
    found: Attributes = {}
    if asked:
        found["gen_ai.input.messages"] = _json([_message(each) for each in asked])
    if said is not None:
        found["gen_ai.output.messages"] = _json([_message({"role": "assistant", "content": said})])
    return found


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}
    else:
        part = {"type": "text", "content": content if isinstance(content, str) else _json(content)}
    return {"role": message.get("role"), "parts": [part]}


def _json(value: object) -> str:
    return json.dumps(whole(value), ensure_ascii=False)


def _provider(model: str) -> str:
    before, slash, _ = model.partition("/")
    return before if slash else "openai"


def _bare(model: str) -> str:
    return model.partition("/")[2] or model
