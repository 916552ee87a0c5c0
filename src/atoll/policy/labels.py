"""Labels: the caller's own words on a sandbox, by which it is found again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import InvalidInput
from .text import kind_of, shown

MAX_LABELS = 64
MAX_KEY = 63
MAX_VALUE = 256

# No "=" and no quote: `-l key=value` stays readable, and the store finds a pair in JSON text.
_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"


def check_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of `labels`, every key and value checked.

    Raises:
        InvalidInput: the first one that is wrong, with the rule it breaks.
    """
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidInput(f"labels is {kind_of(labels)}; give a mapping such as {{'team': 'red'}}.")
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"There are {len(labels)} labels; a sandbox carries at most {MAX_LABELS}.")
    for key, value in labels.items():
        _check_key(key)
        _check_value(key, value)
    return dict(labels)


def parse_label(text: str) -> tuple[str, str]:
    """`key=value`, as a command line gives it.

    Raises:
        InvalidInput: there is no "=", or the key or the value is wrong.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"The label {shown(text)} has no '='; write it as key=value.")
    _check_key(key)
    _check_value(key, value)
    return key, value


def labels_match(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether `labels` hold every pair of `wanted`."""
    return all(labels.get(key) == value for key, value in wanted.items())


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise InvalidInput(f"The label key {shown(key)} is {kind_of(key)}; keys are text.")
    if len(key) > MAX_KEY:
        raise InvalidInput(f"The label key {key[:16]!r}… has {len(key)} characters; at most {MAX_KEY} are allowed.")
    if re.fullmatch(_KEY, key) is None:
        raise InvalidInput(
            f"The label key {key!r} is not allowed; use ASCII letters, digits and . _ / - inside, "
            "and begin and end with a letter or digit."
        )


def _check_value(key: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"The label {key!r} has the value {shown(value)}; values are text.")
    if len(value) > MAX_VALUE:
        raise InvalidInput(f"The label {key!r} has {len(value)} characters; at most {MAX_VALUE} are allowed.")
    if not value.isprintable():
        raise InvalidInput(
            f"The label {key!r} has the value {shown(value)}; line breaks and control characters do not fit."
        )
