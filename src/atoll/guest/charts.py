"""The numbers in matplotlib's axes, in the shape that E2B's code interpreter gives them."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, NamedTuple, Optional, Set

from . import mime
from .chartaxes import Coordinates, Names, labels_of, said, ticks_of
from .chartboxes import boxes_of
from .complaints import named, to_stderr

POINT_LIMIT = 50_000
"""Of one chart. A picture shows a million points, but nobody wants them as JSON."""

Chart = Dict[str, Any]


class _Drawn(NamedTuple):
    """What the user has drawn into axes, without helper lines and error bars."""

    lines: List[Any]
    patches: List[Any]
    points: List[Any]
    others: List[Any]


def chart_of(figure: Any) -> Optional[Chart]:
    """The data of a figure that was drawn. None for one without data."""
    all_axes = [axes for axes in figure.axes if axes.has_data() and axes.get_label() != "<colorbar>"]
    if not all_axes:
        return None
    charts = [_safe_chart(axes) for axes in all_axes]
    chart = charts[0]
    if len(charts) > 1:
        title = figure._suptitle  # noqa: SLF001  # get_suptitle() came with matplotlib 3.8
        chart = {"type": "superchart", "title": said(title.get_text()) if title else None, "elements": charts}
    fit: Chart = mime.plain_json(chart)
    return fit


def _safe_chart(axes: Any) -> Chart:
    """Axes that this does not understand are of an unknown type; the picture is there anyway."""
    try:
        chart = _chart(axes)
        return {"type": chart["type"], "title": said(axes.get_title()), **chart}
    except Exception as error:  # noqa: BLE001  # artists of other libraries may lack anything
        to_stderr("a chart's data cannot be told: %s" % named(error))
        return {"type": "unknown", "title": None, "elements": []}


def _chart(axes: Any) -> Chart:
    unknown = {"type": "unknown", "elements": []}
    drawn = _drawn(axes)
    if axes.name == "3d" or drawn.others or not any(drawn):
        return unknown
    if drawn.patches and not drawn.points:
        return _patch_chart(axes, drawn) or unknown
    if drawn.points:
        return unknown if drawn.patches else _point_chart(axes, "scatter", drawn)
    return boxes_of(axes, drawn.lines, []) or _point_chart(axes, _kind_of_lines(drawn.lines), drawn)


def _patch_chart(axes: Any, drawn: _Drawn) -> Optional[Chart]:
    kinds = sys.modules["matplotlib.patches"]
    if all(isinstance(patch, kinds.Wedge) for patch in drawn.patches):
        return None if drawn.lines else _pie(drawn.patches)
    if all(isinstance(patch, kinds.PathPatch) for patch in drawn.patches):
        return boxes_of(axes, drawn.lines, drawn.patches)
    containers = [found for found in axes.containers if type(found).__name__ == "BarContainer"]
    bars = {id(bar) for container in containers for bar in container}
    if not all(map(_is_straight, drawn.lines)) or not all(id(patch) in bars for patch in drawn.patches):
        return None
    return _bars(axes, containers)


def _drawn(axes: Any) -> _Drawn:
    decoration: Set[int] = set()
    for container in _error_bars(axes):
        _data, caps, bars = container.lines
        decoration.update(id(artist) for artist in (*caps, *bars))
    # Lines across the whole axes, and spans, are drawn in other coordinates than data are.
    data = axes.transData
    lines = [line for line in axes.lines if id(line) not in decoration and line.get_transform() is data]
    patches = [patch for patch in axes.patches if patch.get_data_transform() is data]
    collections = [found for found in axes.collections if id(found) not in decoration]
    points = [found for found in collections if type(found).__name__ == "PathCollection"]
    others = [found for found in collections if found not in points and not (lines and _is_band(found))]
    return _Drawn(lines, patches, points, [*others, *axes.images])


def _error_bars(axes: Any) -> List[Any]:
    return [container for container in axes.containers if type(container).__name__ == "ErrorbarContainer"]


def _is_band(artist: Any) -> bool:
    """The shade of `fill_between`, around or under a line."""
    return any(kind.__name__ == "PolyCollection" for kind in type(artist).__mro__)


def _is_straight(line: Any) -> bool:
    """As the error bars are that some libraries draw as lines."""
    return any(len(set(values)) <= 1 for values in (list(line.get_xdata()), list(line.get_ydata())))


def _kind_of_lines(lines: List[Any]) -> str:
    dots = [line.get_linestyle() in ("None", "none", " ", "") for line in lines]
    return "scatter" if all(dots) else "line"


def _point_chart(axes: Any, kind: str, drawn: _Drawn) -> Chart:
    """Lines and clouds of points, which may be in the same axes."""
    chart = {"type": kind, **labels_of(axes), **ticks_of(axes), "elements": []}
    count = sum(len(line.get_xdata()) for line in drawn.lines) + sum(len(p.get_offsets()) for p in drawn.points)
    if count > POINT_LIMIT:
        chart["omitted"] = "%d points are more than the %d that chart data has room for" % (count, POINT_LIMIT)
        return chart
    named = {id(container.lines[0]): container for container in _error_bars(axes)}
    series = [(named.get(id(line), line), zip(line.get_xdata(), line.get_ydata())) for line in drawn.lines]
    series += [(cloud, cloud.get_offsets()) for cloud in drawn.points]
    across, up = Coordinates(axes.xaxis), Coordinates(axes.yaxis)
    for number, (artist, pairs) in enumerate(series):
        points = [[across.of(x), up.of(y)] for x, y in pairs]
        if points:  # some libraries draw nothing, for the legend's sake
            chart["elements"].append({"label": _label(artist, kind.capitalize(), number), "points": points})
    return chart


def _pie(wedges: List[Any]) -> Chart:
    elements = []
    for number, wedge in enumerate(wedges):
        angle = round(abs(float(wedge.theta2) - float(wedge.theta1)), 4)
        elements.append({"label": _label(wedge, "Slice", number), "angle": angle, "radius": float(wedge.r)})
    return {"type": "pie", "elements": elements}


def _bars(axes: Any, containers: List[Any]) -> Chart:
    lying = all(getattr(container, "orientation", None) == "horizontal" for container in containers)
    names = Names(axes.yaxis if lying else axes.xaxis)
    elements = []
    for number, container in enumerate(containers):
        # A histogram of several series has the name at its first bar.
        first = container.patches[:1] if str(container.get_label()).startswith("_") else []
        group = _label(first[0] if first else container, "Group", number)
        for bar in container:
            middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if lying else bar.get_height()
            elements.append({"label": names.at(float(middle)), "group": group, "value": float(value)})
    return {"type": "bar", **labels_of(axes, swapped=lying), "elements": elements}


def _label(artist: Any, kind: str, number: int) -> str:
    """matplotlib's names for what has none start with an underscore."""
    label = str(artist.get_label())
    return "%s %d" % (kind, number) if not label or label.startswith("_") else label
