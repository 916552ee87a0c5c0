"""MIME bundles: data of any type as the wire carries it."""

from __future__ import annotations

import binascii
import json
import re
from typing import Any, Collection, Dict, Optional

from .complaints import Complain, name_of, named, words_of

TEXT = "text/plain"
TEXT_LIMIT = 500_000
"""Of a value's text, encoded as JSON."""

_WRITTEN = ("image/svg+xml", "application/javascript", "application/xml")
_LONGEST_ESCAPE = 12
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}\Z")


class Unfit(Exception):
    """What an object gave is not what its MIME type needs."""


def text_of(value: Any) -> str:
    """Its repr; that of a broken object says what is wrong with it."""
    try:
        return repr(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  # the cell itself went well
        return "<%s whose repr failed: %s>" % (name_of(type(value)), words_of(error))


def bounded(text: str) -> str:
    """Cut so that it is within TEXT_LIMIT."""
    if len(text) * _LONGEST_ESCAPE <= TEXT_LIMIT:
        return text
    cut = text[:TEXT_LIMIT]
    while len(json.dumps(cut)) > TEXT_LIMIT:
        cut = cut[: len(cut) * 3 // 4]
    return cut


def wanted(
    forms: Dict[str, Any], include: Optional[Collection[str]], exclude: Optional[Collection[str]]
) -> Dict[str, Any]:
    return {mime: data for mime, data in forms.items() if is_wanted(mime, include, exclude)}


def is_wanted(mime: str, include: Optional[Collection[str]], exclude: Optional[Collection[str]]) -> bool:
    return (not include or mime in include) and (not exclude or mime not in exclude)


def fit_bundle(found: Any, complain: Complain) -> Dict[str, Any]:
    """The members of a bundle that are fit to be sent; each of the others is told to `complain`."""
    forms: Dict[str, Any] = {}
    if not isinstance(found, dict):
        complain("a MIME bundle must be a dict, not %s" % name_of(type(found)))
        return forms
    for mime, data in found.items():
        if not isinstance(mime, str):
            complain("a MIME type must be a str, not %s" % name_of(type(mime)))
        elif data is not None:
            add(forms, str.__str__(mime), data, complain)
    return forms


def fit(mime: str, data: Any) -> Any:
    """As it goes over the wire: text, base64 in ASCII, or plain JSON.

    Raises:
        Unfit: it is nothing that this MIME type can carry.
    """
    if mime == "application/json" or mime.endswith("+json"):
        return plain_json(_parsed(data))
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data).decode("utf-8", "replace") if _is_written(mime) else _base64(data)
    if not isinstance(data, str):
        raise Unfit("%s must be %s, not %s" % (mime, "str" if _is_written(mime) else "bytes", name_of(type(data))))
    text = str.__str__(data)
    return text if _is_written(mime) else _checked_base64(mime, text)


def plain_json(data: Any) -> Any:
    """The same in dicts, lists, texts and numbers. JSON has no NaN and no infinity: null stands for them.

    Raises:
        Unfit: it has parts that JSON cannot express.
    """
    try:
        return json.loads(json.dumps(data), parse_constant=_null)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unfit("it is no JSON: %s" % error) from None


def add(forms: Dict[str, Any], mime: str, data: Any, complain: Complain) -> None:
    """To a bundle, if it is fit for it."""
    try:
        forms[mime] = fit(mime, data)
    except Unfit as error:
        complain("%s cannot be shown: %s" % (mime, error))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  # data with methods of its own
        complain("%s cannot be shown: %s" % (mime, named(error)))


def _is_written(mime: str) -> bool:
    return mime.startswith("text/") or mime in _WRITTEN


def _base64(data: Any) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _checked_base64(mime: str, text: str) -> str:
    """Some libraries encode on their own, with line ends."""
    compact = "".join(text.split())
    try:
        if not _BASE64.match(compact):
            raise ValueError
        return _base64(binascii.a2b_base64(compact))
    except ValueError:
        raise Unfit("%s must be bytes, or base64 in a str" % mime) from None


def _parsed(data: Any) -> Any:
    """JSON may come as text; a text that is none is a JSON string."""
    if not isinstance(data, (str, bytes, bytearray)):
        return data
    try:
        return json.loads(data)
    except ValueError:
        return data if isinstance(data, str) else data.decode("utf-8", "replace")


def _null(_constant: str) -> None:
    return None
