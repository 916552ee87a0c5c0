"""Reading what a guest says. It is hostile: every value is checked for its type and its range.

Each function takes a JSON object of the guest and raises `ProtocolError` for what no honest guest says.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from ..errors import ProtocolError
from ..types import CodeError, FileEvent, FileInfo, Match, ProcessInfo, Result

Answer = Mapping[str, Any]

_LARGEST = 1 << 63
_WRITTEN = frozenset(("image/svg+xml", "application/javascript"))
_ENCODED = frozenset(("image/png", "image/jpeg", "application/pdf"))
_OBJECTS = ("application/vnd.atoll.chart+json", "application/vnd.plotly.v1+json", "application/vnd.vega")
_FILE_TYPES = frozenset(("file", "directory", "symlink", "other"))
_EVENT_TYPES = frozenset(("created", "modified", "removed", "moved", "overflow"))


def integer(answer: Answer, name: str) -> int:
    value = answer.get(name)
    if type(value) is not int or not -_LARGEST < value < _LARGEST:
        raise _wrong(name, "an integer", value)
    return value


def number(answer: Answer, name: str) -> float:
    """A finite number, as a float."""
    value = answer.get(name)
    if (type(value) is not int and type(value) is not float) or not -_LARGEST < value < _LARGEST:
        raise _wrong(name, "a number", value)
    return float(value)


def flag(answer: Answer, name: str) -> bool:
    value = answer.get(name)
    if type(value) is not bool:
        raise _wrong(name, "true or false", value)
    return value


def text(answer: Answer, name: str) -> str:
    value = answer.get(name)
    if type(value) is not str:
        raise _wrong(name, "a text", value)
    return value


def items(answer: Answer, name: str) -> list[Answer]:
    """A list of objects."""
    value = answer.get(name)
    if type(value) is not list or not all(type(item) is dict for item in value):
        raise _wrong(name, "a list of objects", value)
    return value


def mapping(answer: Answer, name: str) -> Answer:
    value = answer.get(name)
    if type(value) is not dict:
        raise _wrong(name, "an object", value)
    return value


def file_info(answer: Answer) -> FileInfo:
    kind = text(answer, "type")
    if kind not in _FILE_TYPES:
        raise _wrong("type", "a type of file", kind)
    target = None if answer.get("target") is None else text(answer, "target")
    return FileInfo(
        path=text(answer, "path"),
        name=text(answer, "name"),
        type=kind,  # type: ignore[arg-type]  # checked against the closed set above
        size=integer(answer, "size"),
        mode=integer(answer, "mode"),
        modified=number(answer, "modified"),
        target=target,
    )


def file_event(answer: Answer) -> FileEvent:
    kind = text(answer, "type")
    if kind not in _EVENT_TYPES:
        raise _wrong("type", "a type of event", kind)
    return FileEvent(kind, text(answer, "path"))  # type: ignore[arg-type]  # checked just above


def match(answer: Answer) -> Match:
    return Match(text(answer, "path"), integer(answer, "line"), text(answer, "text"))


def process_info(answer: Answer) -> ProcessInfo:
    return ProcessInfo(
        pid=integer(answer, "pid"),
        parent=integer(answer, "parent"),
        command=text(answer, "command"),
        state=text(answer, "state"),
        memory=integer(answer, "memory"),
        cpu_seconds=number(answer, "cpu_seconds"),
        started_by_api=flag(answer, "started_by_api"),
    )


def result(answer: Answer) -> Result:
    """A MIME bundle whose members are what `Result`'s properties promise."""
    bundle = mapping(answer, "result")
    for mime, data in bundle.items():
        if mime.startswith("text/") or mime in _WRITTEN:
            if type(data) is not str:
                raise _wrong(mime, "a text", data)
        elif mime in _ENCODED:
            _check_base64(mime, data)
        elif mime.startswith(_OBJECTS) and type(data) is not dict:
            raise _wrong(mime, "an object", data)
    return Result(bundle, flag(answer, "main"))


def _check_base64(mime: str, data: object) -> None:
    """Jupyter's kernels put line ends into it."""
    try:
        if type(data) is not str:
            raise ValueError
        binascii.a2b_base64("".join(data.split()), strict_mode=True)
    except ValueError:
        raise _wrong(mime, "base64", data) from None


def code_error(answer: Answer) -> CodeError | None:
    if "error" in answer and answer["error"] is None:
        return None
    error = mapping(answer, "error")
    return CodeError(text(error, "name"), text(error, "value"), text(error, "traceback"))


def _wrong(name: str, expected: str, value: object) -> ProtocolError:
    return ProtocolError(f"The guest's answer has {expected} missing at {name!r}: {ascii(value)[:100]}.")
