"""What an MCP server gave, as the outcome of a tool. A server is not trusted: everything of it is bounded."""

from __future__ import annotations

import json
from typing import Any

from .toolspec import MOST_IMAGES, Outcome, bounded


def outcome_of(result: Any) -> Outcome:
    """Of a `CallToolResult`: its texts, its images, and what it says in structured form only."""
    texts: list[str] = []
    told: list[str] = []
    images: list[tuple[str, str]] = []
    for block in result.content:
        if block.type == "text":
            texts.append(block.text)
            told.append(block.text)
        elif block.type == "image" and sum(len(data) for _, data in images) + len(block.data) <= MOST_IMAGES:
            images.append((block.mime_type, block.data))
        else:
            told.append(_described(block))
    structured = result.structured_content
    if structured is not None and not _says(texts, structured):
        told.append(json.dumps(structured, ensure_ascii=False, default=str))
    return Outcome(bounded("\n".join(told)), failed=bool(result.is_error), images=tuple(images))


def _described(block: Any) -> str:
    """What a model cannot be shown, in words; the text of a resource as it is."""
    if block.type == "resource":
        held = block.resource
        if hasattr(held, "text"):
            return str(held.text)
        return f"[a resource, {held.uri}, {held.mime_type or 'of unknown type'}, {_size(held.blob)}]"
    if block.type == "resource_link":
        return f"[a link to the resource {block.name}: {block.uri}]"
    if block.type == "image":
        return f"[an image, {block.mime_type}, {_size(block.data)}: too large to be shown]"
    return f"[{block.type}, {getattr(block, 'mime_type', 'of unknown type')}, {_size(getattr(block, 'data', ''))}]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4} bytes"


def _says(texts: list[str], structured: Any) -> bool:
    """Whether the texts are the structured content once more, as they are to be for older clients."""
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
