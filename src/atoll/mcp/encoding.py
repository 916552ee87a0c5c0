"""JSON for the wire: one line, ASCII, and nothing that another parser would refuse."""

from __future__ import annotations

import json
import math
from typing import Any

_LARGEST_INT = 10_000
_DEEPEST = 100
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encoded(value: Any) -> str:
    """A value as JSON on one line. What JSON cannot hold, such as NaN or half a surrogate pair, becomes text that it
    can."""
    try:
        text = _encode(value)
    except (TypeError, ValueError):
        return _encode(plain(value))
    # Half a surrogate pair is written as an escape, which strict parsers refuse. Whole ones are escapes, too.
    return _encode(plain(value)) if "\\ud" in text else text


def plain(value: Any, depth: int = 0) -> Any:
    """The same with everything replaced that is no JSON."""
    if isinstance(value, int):
        # Python refuses to write very many decimal digits.
        return value if value.bit_length() < _LARGEST_INT else hex(value)
    if value is None or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict) and depth < _DEEPEST:
        return {plain(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [plain(item, depth + 1) for item in value]
    return plain(str(value))


def result_line(id: str | int, result: str) -> bytes:
    """The answer to a request; `result` is JSON."""
    return f'{{"jsonrpc":"2.0","id":{_id(id)},"result":{result}}}\n'.encode("ascii")


def error_line(id: str | int | None, code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return f'{{"jsonrpc":"2.0","id":{_id(id)},"error":{encoded(error)}}}\n'.encode("ascii")


def progress_line(token: str | int, count: int, message: str) -> bytes:
    params = {"progressToken": token, "progress": count, "message": message}
    return f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{encoded(params)}}}\n'.encode("ascii")


def _id(id: str | int | None) -> str:
    # As it came, so that the client knows it again.
    return json.dumps(id)
