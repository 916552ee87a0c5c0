"""What the axes of a matplotlib chart say: labels, units, scales, ticks, and which name belongs to a position."""

from __future__ import annotations

import re
import sys
from typing import Any, Dict, List, Optional, Tuple

_UNIT = re.compile(r"\(([^()]+)\)|\[([^\[\]]+)\]")
_NUMBERS = ("ScalarFormatter", "LogFormatter", "NullFormatter", "PercentFormatter", "EngFormatter", "LogitFormatter")


def said(text: str) -> Optional[str]:
    """An empty title or label is none."""
    return text or None


def labels_of(axes: Any, *, swapped: bool = False) -> Dict[str, Any]:
    """The labels, and the units in brackets in them. `swapped`: x is what was drawn upwards."""
    x, y = said(axes.get_xlabel()), said(axes.get_ylabel())
    if swapped:
        x, y = y, x
    return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}


def ticks_of(axes: Any) -> Dict[str, Any]:
    """Where the ticks are, what is written there, and on which scale."""
    found: Dict[str, Any] = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        found[name + "_ticks"] = [_position(axis, tick) for tick in axis.get_ticklocs()]
        found[name + "_tick_labels"] = [label.get_text() for label in axis.get_ticklabels()]
        found[name + "_scale"] = _scale(axis)
    return found


def plain(value: Any) -> Any:
    """A coordinate as a number or a text; dates as ISO 8601."""
    kind = type(value).__name__
    if kind == "datetime64":
        return str(value.astype("datetime64[us]")).replace(".000000", "")
    if kind == "MaskedConstant":
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


class Coordinates:
    """The values along an axis; artists may keep them as the axis counts: days, periods, numbers of categories."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self._time = _is_time(axis)
        self._names = Names(axis) if _is_categories(axis) else None

    def of(self, value: Any) -> Any:
        known = plain(value)
        if not isinstance(known, float) or known != known:  # noqa: PLR0124  # NaN has no place on any axis
            return known
        if self._names is not None:
            return self._names.at(known)
        return _position(self._axis, known) if self._time else known


class Names:
    """What is written under the positions of an axis."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self._named: List[Tuple[float, str]] = []
        if not _is_time(axis) and not _is_numbers(axis.get_major_formatter()):
            texts = [label.get_text() for label in axis.get_ticklabels()]
            self._named = [(float(at), text) for at, text in zip(axis.get_ticklocs(), texts) if text]
        gaps = [abs(b[0] - a[0]) for a, b in zip(self._named, self._named[1:])]
        self._reach = min(gaps) / 2 if gaps else 0.5

    def at(self, position: float) -> str:
        """The name that is nearest, since bars of several groups stand beside it; else the position itself."""
        if self._named:
            near, text = min(self._named, key=lambda named: abs(named[0] - position))
            if abs(near - position) <= self._reach:
                return text
        if _is_time(self._axis):
            return str(_position(self._axis, position))
        return "%g" % position


def _unit(label: Optional[str]) -> Optional[str]:
    match = _UNIT.search(label or "")
    return (match.group(1) or match.group(2)) if match else None


def _scale(axis: Any) -> str:
    if _is_time(axis):
        return "datetime"
    scale: str = axis.get_scale()
    if scale != "linear":
        return scale
    if _is_categories(axis):
        return "categorical"
    if _is_numbers(axis.get_major_formatter()):
        return scale
    ticks = [float(tick) for tick in axis.get_ticklocs()]
    return "categorical" if ticks and ticks == [float(number) for number in range(len(ticks))] else scale


def _position(axis: Any, tick: Any) -> Any:
    if not _is_time(axis):
        return float(tick)
    frequency = getattr(axis, "freq", None)
    if frequency is not None and "pandas" in sys.modules:
        return str(sys.modules["pandas"].Period(ordinal=int(tick), freq=frequency))
    return sys.modules["matplotlib.dates"].num2date(tick).isoformat()


def _is_time(axis: Any) -> bool:
    """Of matplotlib's own dates, or of pandas'."""
    if getattr(axis, "freq", None) is not None:
        return True
    converter = _converter(axis)
    name = type(converter).__name__
    return "Date" in name or name == "PeriodConverter"


def _is_categories(axis: Any) -> bool:
    return type(_converter(axis)).__name__ == "StrCategoryConverter"


def _converter(axis: Any) -> Any:
    return axis.get_converter() if hasattr(axis, "get_converter") else axis.converter


def _is_numbers(formatter: Any) -> bool:
    return any(kind.__name__ in _NUMBERS for kind in type(formatter).__mro__)
