"""What an MCP server gave, as the outcome of a tool. A server is not trusted: everything of it is bounded."""

from __future__ import annotations

import base64
import json
from typing import Any

from .mcpmessages import MOST_VALUES, marks
from .toolspec import MOST_IMAGES, Outcome, bounded

# As many as models take in one go.
_MOST_PICTURES = 20
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_DECLARED = {*_KINDS.values(), "image/webp", "image/jpg"}


def outcome_of(result: Any) -> Outcome:
    """Of a `CallToolResult`: its texts, its images, and what it says in structured form only."""
    texts: list[str] = []
    told: list[str] = []
    images: list[tuple[str, str]] = []
    room = MOST_IMAGES
    for block in result.content:
        if block.type == "text":
            texts.append(block.text)
            told.append(block.text)
        elif block.type == "image":
            kind, problem = _picture(block.mime_type, block.data)
            if not problem and (len(block.data) > room or len(images) == _MOST_PICTURES):
                problem = "too large to be shown" if len(block.data) > room else "one too many to be shown"
            if problem:
                told.append(f"[an image, {_short(block.mime_type)}, {_size(block.data)}: {problem}]")
            else:
                images.append((kind, block.data))
                room -= len(block.data)
        else:
            told.append(_described(block))
    structured = result.structured_content
    if structured is not None and not _says(texts, structured):
        told.append(json.dumps(structured, ensure_ascii=False, default=str))
    return Outcome(bounded("\n".join(told)), failed=bool(result.is_error), images=tuple(images))


def _picture(declared: str, data: str) -> tuple[str, str]:
    """Its type, which its bytes tell, and why it cannot be shown, if it cannot: a model's provider refuses a whole
    conversation for one image that is none."""
    if declared.strip().lower() not in _DECLARED:
        return "", "not of a type that models see"
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return "", "not in base64"
    for beginning, kind in _KINDS.items():
        if content.startswith(beginning):
            return kind, ""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp", ""
    return "", "not what it says"


def _described(block: Any) -> str:
    """What a model cannot be shown, in words; the text of a resource as it is."""
    if block.type == "resource":
        held = block.resource
        if hasattr(held, "text"):
            return str(held.text)
        return f"[a resource, {held.uri}, {held.mime_type or 'of unknown type'}, {_size(held.blob)}]"
    if block.type == "resource_link":
        return f"[a link to the resource {block.name}: {block.uri}]"
    return f"[{block.type}, {getattr(block, 'mime_type', 'of unknown type')}, {_size(getattr(block, 'data', ''))}]"


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4} bytes"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "…"


def _says(texts: list[str], structured: Any) -> bool:
    """Whether the texts are the structured content once more, as they are to be for older clients."""
    if sum(marks(text.encode("utf-8", "replace")) for text in texts) > MOST_VALUES:
        return False  # a text in JSON within a message in JSON is as large, and nobody has counted in it
    values = [_value(text) for text in texts]
    said = [values, *values[:1]] if len(values) == 1 else [values]
    # The SDK wraps what is no object in one with this key.
    inner = structured.get("result") if isinstance(structured, dict) and list(structured) == ["result"] else structured
    return any(each in (structured, inner) or texts == [inner] for each in said)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
