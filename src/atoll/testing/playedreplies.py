"""What a played model says: replies and faults as plain dicts, which a script in a JSON file can have too."""

from __future__ import annotations

import json
from typing import Any

from ..errors import InvalidInput
from ..policy.text import shown

Played = dict[str, Any]
_KEYS = {
    "text", "calls", "usage", "finish", "reasoning", "refusal", "model", "delay", "status", "headers", "error", "body",
    "cut", "pad", "stream", "drop",
}  # fmt: skip


def says(text: str, **more: Any) -> Played:
    """A reply of text. `more`: `usage` (dict or (prompt, completion[, cached]), None for none), `finish`, `reasoning`,
    `refusal`, `model`, and `delay` in seconds."""
    return {"text": text, **more}


def calls(*wanted: tuple[str, Any], text: str | None = None, **more: Any) -> Played:
    """A reply that calls tools: `calls(("run_code", {"code": "1"}), ("read_file", {"path": "a"}))`. Arguments that are
    a string are sent as they are, so that they can be malformed."""
    return {"text": text, "calls": [list(call) for call in wanted], **more}


def refuses(text: str, **more: Any) -> Played:
    """A refusal, as OpenAI's models give it."""
    return {"text": None, "refusal": text, **more}


def fails(status: int, message: str = "It broke.", *, code: str | None = None, **headers: str) -> Played:
    """An HTTP error in OpenAI's form; `Retry_After="1"` and such are headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": status, "error": {"message": message, "type": "error", "code": code}, "headers": named}


def limited(retry_after: float | str | None = None) -> Played:
    """Too many requests. `retry_after` is seconds, or text such as an HTTP date."""
    headers = {} if retry_after is None else {"Retry_After": str(retry_after)}
    return fails(429, "Rate limit reached.", code="rate_limit_exceeded", **headers)


def malformed(body: str = '{"choices": [{"mess') -> Played:
    """Whole, with status 200, and no JSON."""
    return {"body": body}


def raw(value: Any) -> Played:
    """Any JSON value as the body, such as one of wrong types."""
    return {"body": json.dumps(value)}


def cut_off(reply: Played, after: int = 20) -> Played:
    """The connection ends after so many bytes of the body."""
    return {**reply, "cut": after}


def drops() -> Played:
    """The connection ends without a byte."""
    return {"drop": True}


def slow(reply: Played, seconds: float) -> Played:
    """Nothing is sent for so long."""
    return {**reply, "delay": seconds}


def huge(size: int) -> Played:
    """A reply whose text has so many bytes."""
    return {"text": "", "pad": size}


def streams(text: str) -> Played:
    """Server-sent events, asked for or not."""
    return {"text": text, "stream": True}


def redirects(url: str, status: int = 307) -> Played:
    """The answer is elsewhere."""
    return {"status": status, "headers": {"Location": url}, "body": ""}


def check(reply: Any) -> Played:
    """The reply itself, if it is one. Raises: InvalidInput."""
    if isinstance(reply, str):
        return {"text": reply}
    if not isinstance(reply, dict):
        raise InvalidInput(
            f"A played reply is a dict such as says('hi') makes, or a string, not {type(reply).__name__}."
        )
    if unknown := set(reply) - _KEYS:
        raise InvalidInput(f"A played reply has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(_KEYS))}.")
    _check_calls(reply.get("calls"))
    return reply


def _check_calls(wanted: Any) -> None:
    if wanted is None or (isinstance(wanted, list | tuple) and all(map(_is_call, wanted))):
        return
    raise InvalidInput(
        f"A played reply has calls {shown(wanted)}; give name and arguments of each, as in "
        '[["run_code", {"code": "6 * 7"}]].'
    )


def _is_call(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str)


def completion(reply: Played, request: Any, turn: int) -> dict[str, Any]:
    """The body of a chat completion. Ids are the same whenever the same turn of a conversation is played again."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.get("text")}
    if reply.get("pad"):
        message["content"] = (message["content"] or "") + "x" * reply["pad"]
    if reply.get("reasoning") is not None:
        message["reasoning_content"] = reply["reasoning"]
    if reply.get("refusal") is not None:
        message["refusal"] = reply["refusal"]
    if wanted := reply.get("calls"):
        message["tool_calls"] = [_tool_call(call, f"call_{turn}_{number}") for number, call in enumerate(wanted)]
    finish = reply.get("finish") or ("tool_calls" if wanted else "stop")
    asked = request.get("model") if isinstance(request, dict) else None
    body = {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1700000000,
        "model": reply.get("model") or asked or "played",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
    }
    usage = _usage(reply, request, message)
    return body if usage is None else {**body, "usage": usage}


def events(body: dict[str, Any]) -> str:
    """A completion as server-sent events: one chunk with everything, then the end."""
    choice = body["choices"][0]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    chunk = {**body, "object": "chat.completion.chunk"}
    chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}]
    return f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"


def _tool_call(call: Any, id: str) -> dict[str, Any]:
    name, arguments = call
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def _usage(reply: Played, request: Any, message: dict[str, Any]) -> dict[str, Any] | None:
    told = reply.get("usage", "guess")
    if told is None or isinstance(told, dict):
        return told
    if told == "guess":
        told = (len(json.dumps(request)) // 4 + 1, len(json.dumps(message)) // 4 + 1)
    prompt, completed, *cached = told
    usage = {"prompt_tokens": prompt, "completion_tokens": completed, "total_tokens": prompt + completed}
    return {**usage, "prompt_tokens_details": {"cached_tokens": cached[0]}} if cached else usage
