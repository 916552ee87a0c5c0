"""Values as people write them on a command line: durations, numbers, variables, labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ..errors import InvalidInput
from ..policy.labels import parse_label
from ..policy.limits import parse_duration
from ..policy.text import shown


def duration(text: str, option: str) -> float:
    """Seconds, from `90`, `1.5`, `2m`, `3h` or `1d`.

    Raises:
        InvalidInput: it is none.
    """
    seconds = parse_duration(text)
    if not seconds:
        raise InvalidInput(f"{option} is {shown(text)}; give seconds above 0, or a time such as 90s, 5m, 2h or 1d.")
    return seconds


def timeout(text: str | None) -> float | str | None:
    """The `timeout` of an API call: seconds, None for "none", "default" when nothing was given."""
    if text is None:
        return "default"
    if text == "none":
        return None
    if text[:1].isalpha():  # as if -t were docker's
        raise InvalidInput(
            f"--timeout is {shown(text)}; give seconds above 0, or a time such as 90s or 5m, or none.",
            hint="For a terminal write -it, or nothing: on a terminal a command has it.",
        )
    return duration(text, "--timeout")


def number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{option} is {shown(text)}; give a number.") from None


def whole_number(text: str, option: str) -> int:
    if re.fullmatch(r"[0-9]{1,12}", text) is None:
        raise InvalidInput(f"{option} is {shown(text)}; give a whole number.")
    return int(text)


def variables(entries: Iterable[str]) -> dict[str, str]:
    """From `NAME=value`, or `NAME` for the value that it has here.

    Raises:
        InvalidInput: there is no such variable here, or that is no name.
    """
    found = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals:
            if name not in os.environ:
                raise InvalidInput(
                    f"--env {shown(entry)}: there is no such variable here to pass on; write NAME=value to set one."
                )
            value = os.environ[name]
        found[name] = value
    return found


def labels(entries: Iterable[str]) -> dict[str, str]:
    """From `key=value`. Raises InvalidInput."""
    return dict(parse_label(entry) for entry in entries)
