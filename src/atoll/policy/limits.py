"""How much and how long: resources and times, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput
from ..types import Resources
from .sizes import format_size, parse_size
from .text import kind_of, shown

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# Below these the guest itself does not come up, and the failure would be a riddle.
MIN_MEMORY = 16 << 20
MIN_PIDS = 8
MIN_DISK = 1 << 20
MIN_CPU = 0.01
MAX_PIDS = 1 << 22
MAX_CPU = 4096.0

# A socket's timeout is counted by the kernel in milliseconds of 31 bits, 24.8 days.
MAX_TIMEOUT = 24 * 86400.0
MAX_LIFETIME = 10 * 365 * 86400.0


def check_resources(resources: Resources | Mapping[str, Any] | None) -> Resources:
    """Limits from a `Resources` or a mapping such as `{"memory": "512M", "cpu": 1.0}`.

    Raises:
        InvalidInput: an unknown name, or a limit that no sandbox can live with.
    """
    if resources is None:
        return Resources()
    if isinstance(resources, Resources):
        given: Mapping[str, Any] = resources._asdict()
    elif isinstance(resources, Mapping):
        given = resources
    else:
        raise InvalidInput(
            f"resources is {kind_of(resources)}; give Resources(…) or a mapping such as {{'memory': '512M'}}."
        )
    unknown = [key for key in given if key not in Resources._fields]
    if unknown:
        raise InvalidInput(f"resources has no {shown(unknown[0])}; the names are {', '.join(Resources._fields)}.")
    default = Resources()
    return Resources(
        memory=_at_least(given.get("memory", default.memory), MIN_MEMORY, "memory"),
        cpu=_cpu(given.get("cpu", default.cpu)),
        pids=_pids(given.get("pids", default.pids)),
        disk=None if given.get("disk") is None else _at_least(given["disk"], MIN_DISK, "disk"),
    )


def check_timeout(timeout: object, what: str = "timeout") -> float | None:
    """Seconds for one command or cell; None is without end.

    Raises:
        InvalidInput: it is no time above 0, or above 24 days.
    """
    return None if timeout is None else _seconds(timeout, what, MAX_TIMEOUT, "24 days: the kernel waits no longer")


def check_lifetime(lifetime: object) -> float:
    """Seconds that a sandbox may live. Every sandbox ends some day, so None is refused.

    Raises:
        InvalidInput: it is no time above 0, or above ten years.
    """
    return _seconds(lifetime, "lifetime", MAX_LIFETIME, "ten years")


def parse_duration(text: str) -> float | None:
    """Seconds, from text such as `90`, `1.5`, `90s`, `5m`, `2h` or `1d`; None for what is no time."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhd]?)", text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def _seconds(value: object, what: str, most: float, limit: str) -> float:
    given: object = value
    if isinstance(value, str):
        given = parse_duration(value)
    elif hasattr(value, "total_seconds"):
        given = value.total_seconds()
    number = _number(given)
    if number is None or number <= 0:
        raise InvalidInput(f"{what} is {shown(value)}; give seconds above 0, a timedelta, or text such as '5m'.")
    if number > most:
        raise InvalidInput(f"{what} is {shown(value)}; give seconds, at most {most:.0f}, which are {limit}.")
    return number


def _number(value: object) -> float | None:
    """A finite float, or None for what is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _at_least(value: Any, least: int, what: str) -> int:
    size = parse_size(value, what)
    if size < least:
        raise InvalidInput(f"{what} is {shown(value)}; a sandbox needs at least {format_size(least)}.")
    return size


def _cpu(value: object) -> float | None:
    if value is None:
        return None
    number = _cores(value) if isinstance(value, str) else _number(value)
    if number is None or not MIN_CPU <= number <= MAX_CPU:
        raise InvalidInput(
            f"cpu is {shown(value)}; give cores from {MIN_CPU} to {MAX_CPU:.0f}, such as 0.5, 2 or '500m'."
        )
    return number


def _cores(text: str) -> float | None:
    """Cores from text such as "2", "0.5" or, in thousandths, "500m"; None for what is none."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(m?)", text.strip())
    return None if match is None else float(match[1]) / (1000 if match[2] else 1)


def _pids(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_PIDS <= value <= MAX_PIDS:
        raise InvalidInput(f"pids is {shown(value)}; give a whole number from {MIN_PIDS} to {MAX_PIDS}.")
    return value
