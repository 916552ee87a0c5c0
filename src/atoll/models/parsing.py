"""From the body of a chat completion to a reply. Pure; what servers and models write is hostile or broken."""

from __future__ import annotations

import json
import os
from typing import Any, NoReturn

from .contract import Reply, ToolCall, Usage

UNNAMED = "unnamed_tool"
"""The name of a tool call that has none: no tool has it, and it can be sent back."""
_MOST_TOKENS = 1 << 53


class Malformed(Exception):
    """No reply can be made of it. The message goes on from "The answer "; `again` says whether to ask again."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class Reported(Exception):
    """Status 200, and inside an error with a status of its own, as routers of models give it."""

    def __init__(self, status: int, value: Any) -> None:
        super().__init__(status)
        self.status = status
        self.value = value


def parse(body: bytes, kind: str, asked: str) -> tuple[Reply, float | None]:
    """The reply, its cost still unknown, and the cost that the server itself says, if any. `kind` is the content type,
    `asked` the model that was asked for.

    Raises: Malformed, Reported.
    """
    if kind.startswith("text/event-stream") or body.lstrip()[:5] == b"data:":
        raise Malformed("is a stream, which was not asked for: the server, or a proxy before it, is wrong", again=False)
    return parse_value(_load(body, kind), asked)


def parse_value(value: Any, asked: str) -> tuple[Reply, float | None]:
    """The same for what was JSON already."""
    if not isinstance(value, dict):
        raise Malformed(f"should be a JSON object, and is {_kind(value)}", again=False)
    choices = value.get("choices")
    if value.get("error") and not choices:
        raise Reported(_status(value["error"]), value)
    if not isinstance(choices, list):
        raise Malformed(f"should have a list of choices, and has {_kind(choices)}", again=choices is None)
    if not choices:
        raise Malformed("has no choice in it")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        if isinstance(choice, dict) and choice.get("error"):
            raise Reported(_status(choice["error"]), choice)
        raise Malformed("should have a message in its first choice, and has none", again=False)
    text, refusal, reasoning = _content(message)
    calls = _tool_calls(message)
    told = choice.get("finish_reason")
    finish = _clean(told) if isinstance(told, str) and told else "tool_calls" if calls else "stop"
    if finish == "error":
        raise Reported(_status(choice.get("error")), choice)
    model = value.get("model")
    usage = value.get("usage")
    reply = Reply(
        text=text,
        tool_calls=calls,
        finish="tool_calls" if finish == "function_call" else finish,
        usage=_usage(usage),
        model=_clean(model) if isinstance(model, str) and model else asked,
        cost=None,
        reasoning=reasoning,
        refusal=refusal,
    )
    return reply, _cost(usage)


def _load(body: bytes, kind: str) -> Any:
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        pass
    start = body[:200].lstrip()
    if not start:
        raise Malformed("is empty")
    if kind.startswith("text/html") or start.startswith(b"<"):
        raise Malformed("is a web page and no JSON: is the base URL that of an API?", again=False)
    raise Malformed("is no JSON")


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _content(message: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Text, refusal and reasoning, each of which some servers put among the parts of the content."""
    content = message.get("content")
    parts: dict[str, list[str]] = {"text": [], "refusal": [], "thinking": []}
    if isinstance(content, str):
        parts["text"].append(content)
    elif isinstance(content, list):
        for part in content:
            _sort(part, parts)
    elif content is not None:
        raise Malformed(f"should have text as its content, and has {_kind(content)}", again=False)
    for name, field in (("thinking", "reasoning_content"), ("thinking", "reasoning"), ("refusal", "refusal")):
        if isinstance(message.get(field), str) and message[field] and not parts[name]:
            parts[name].append(message[field])
    text, refusal, reasoning = (_clean("".join(parts[name])) for name in ("text", "refusal", "thinking"))
    return text, refusal or None, reasoning or None


def _sort(part: Any, parts: dict[str, list[str]]) -> None:
    if isinstance(part, str):
        parts["text"].append(part)
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "output_text", "refusal") and isinstance(part.get("text", part.get("refusal")), str):
        parts["refusal" if kind == "refusal" else "text"].append(part.get("text", part.get("refusal")))
    elif kind in ("thinking", "reasoning"):
        inner = part.get("thinking", part.get("reasoning"))
        pieces = inner if isinstance(inner, list) else [inner]
        for piece in pieces:
            told = piece.get("text") if isinstance(piece, dict) else piece
            if isinstance(told, str):
                parts["thinking"].append(told)
    else:
        # Said, not dropped: who reads the reply sees that there was more.
        parts["text"].append(f"[a part of type {kind!r:.40}]" if isinstance(part, dict) else f"[{_kind(part)}]")


def _tool_calls(message: dict[str, Any]) -> tuple[ToolCall, ...]:
    found = message.get("tool_calls")
    if found is None and isinstance(message.get("function_call"), dict):
        found = [{"function": message["function_call"]}]
    if found is None:
        return ()
    if not isinstance(found, list):
        raise Malformed(f"should have a list of tool calls, and has {_kind(found)}", again=False)
    calls: list[ToolCall] = []
    ids: set[str] = set()
    for one in found:
        call = one if isinstance(one, dict) else {}
        inner = call.get("function")
        function = inner if isinstance(inner, dict) else call
        id = call.get("id")
        id = _clean(id) if isinstance(id, str) else ""
        if not id or id in ids:
            # Results are told apart by id, so each call gets one that nothing else has.
            id = f"call_{os.urandom(8).hex()}"
        ids.add(id)
        name = function.get("name")
        name = _clean(name) if isinstance(name, str) and name else UNNAMED
        calls.append(ToolCall(id, name, _arguments(function.get("arguments"))))
    return tuple(calls)


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return _clean(value) if value.strip() else "{}"
    return "{}" if value is None else _clean(json.dumps(value, ensure_ascii=False))


def _usage(value: Any) -> Usage | None:
    """What the server counted, or None when that is not believable."""
    if not isinstance(value, dict):
        return None
    prompt, completion = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    details = value.get("prompt_tokens_details")
    places = ((details, "cached_tokens"), (value, "prompt_cache_hit_tokens"), (value, "cached_tokens"))
    told = (_count(place.get(name)) for place, name in places if isinstance(place, dict))
    return Usage(prompt, completion, min(prompt, next((count for count in told if count), 0)))


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TOKENS:
        return None
    return value


def _cost(usage: Any) -> float | None:
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e6:
        return None
    return float(cost)


def _status(error: Any) -> int:
    """The HTTP status that an error inside an answer stands for."""
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 500


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which can be neither stored nor sent on."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), "something else")
