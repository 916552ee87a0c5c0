"""Finding the boxes of a box plot again: matplotlib keeps no more of it than the lines that it drew."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .chartaxes import Names, labels_of

_NEAR = 1e-6
_CORNERS = 5
_CORNERS_OF_A_NOTCH = 11

Points = List[Tuple[float, float]]


class _Stroke(NamedTuple):
    """A line in the direction of an upright plot: `across` is along the row of boxes, `values` along what they show."""

    across: List[float]
    values: List[float]
    dots: bool


class _Box(NamedTuple):
    left: float
    right: float
    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    def spans(self, stroke: _Stroke) -> bool:
        slack = _NEAR + (self.right - self.left) * _NEAR
        return self.left - slack <= min(stroke.across) and max(stroke.across) <= self.right + slack

    def holds(self, value: float) -> bool:
        slack = _NEAR * max(1.0, abs(self.high), abs(self.low))
        return self.low - slack <= value <= self.high + slack


def boxes_of(axes: Any, lines: List[Any], patches: List[Any]) -> Optional[Dict[str, Any]]:
    """A box-and-whisker chart without its title; None when the axes show something else."""
    outlines: List[Points] = [patch.get_path().vertices.tolist() for patch in patches]
    few = [_points(line) for line in lines if _CORNERS <= len(line.get_xdata()) <= _CORNERS_OF_A_NOTCH]
    outlines += [points for points in few if points[0] == points[-1]]
    if not outlines:
        return None
    for upright in (True, False):
        strokes = [_stroke(line, upright=upright) for line in lines]
        boxes = [_box(points, upright=upright) for points in outlines]
        names = Names(axes.xaxis if upright else axes.yaxis)
        elements = [_element(box, strokes, names) for box in boxes]
        if all(element is not None for element in elements):
            return {"type": "box_and_whisker", **labels_of(axes, swapped=not upright), "elements": elements}
    return None


def _element(box: _Box, strokes: List[_Stroke], names: Names) -> Optional[Dict[str, Any]]:
    """None when there is no median in it: then it is no box of this direction."""
    inside = [stroke for stroke in strokes if box.spans(stroke)]
    levels = [s for s in inside if _is_level(s) and box.holds(s.values[0])]
    if not levels:
        return None
    ends = [value for s in inside if _is_whisker(s) for value in s.values]
    low, high = min([*ends, box.low]), max([*ends, box.high])
    dots = [s.values for s in inside if s.dots and abs(s.across[0] - box.middle) <= _NEAR]
    return {
        "label": names.at(box.middle),
        "min": low,
        "first_quartile": box.low,
        "median": _median(levels, low, high),
        "third_quartile": box.high,
        "max": high,
        # The dot of the mean, where there is one, comes before those of the outliers.
        "outliers": [value for value in (dots[-1] if dots else []) if not low <= value <= high],
    }


def _median(levels: List[_Stroke], low: float, high: float) -> float:
    """The widest line across the box that is not the cap of a whisker; the line of the mean comes after it."""
    inner = [stroke for stroke in levels if stroke.values[0] not in (low, high)]
    return max(inner or levels, key=lambda stroke: abs(stroke.across[1] - stroke.across[0])).values[0]


def _is_level(stroke: _Stroke) -> bool:
    return len(stroke.values) == 2 and stroke.values[0] == stroke.values[1] and stroke.across[0] != stroke.across[1]


def _is_whisker(stroke: _Stroke) -> bool:
    return len(stroke.values) == 2 and stroke.across[0] == stroke.across[1] and not stroke.dots


def _stroke(line: Any, *, upright: bool) -> _Stroke:
    points = _points(line)
    xs, ys = [x for x, _ in points] or [float("nan")], [y for _, y in points] or [float("nan")]
    dots = line.get_linestyle() in ("None", "none", " ", "")
    return _Stroke(xs, ys, dots) if upright else _Stroke(ys, xs, dots)


def _points(line: Any) -> Points:
    return [(float(x), float(y)) for x, y in line.get_xydata()]


def _box(points: Points, *, upright: bool) -> _Box:
    """matplotlib draws from the first quartile on, and is at the third one half way. A notch may reach beyond both."""
    across, values = [x for x, _ in points], [y for _, y in points]
    if not upright:
        across, values = values, across
    ends = sorted((float(values[0]), float(values[len(values) // 2])))
    return _Box(float(min(across)), float(max(across)), *ends)
