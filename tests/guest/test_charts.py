"""The numbers in matplotlib's axes come back as they went in."""

import pytest
from tests.guest.showing import show

CHART = "application/vnd.atoll.chart+json"
IMPORT = "import matplotlib.pyplot as plt, numpy as np, pandas as pd, datetime"
CLASSES = "[[85, 90, 78, 92, 88], [1, 2, 3, 4, 50]]"
CELLS = {
    "line": "plt.plot([1, 2, 3], [1, 4, 9], label='squares'); plt.plot([1, 2], [3, 3]); plt.axhline(2);"
    "plt.axvspan(1, 2); plt.grid(); plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Speed [m/s]')",
    "log": "plt.plot([1, 10]); plt.yscale('log')",
    "gap": "plt.plot([1, np.nan, 3], [1, np.inf, 3])",
    "categories": "plt.plot(['a', 'b'], [1, 2])",
    "dates": "plt.plot([datetime.date(2024, 1, day) for day in (1, 2)], [1, 2])",
    "datetime64": "plt.plot(np.array(['2024-01-01', '2024-01-02'], dtype='datetime64[D]'), [1, 2])",
    "periods": "pd.Series([1, 2, 3], index=pd.date_range('2024-01-01', periods=3), name='s').plot(legend=True)",
    "errors": "plt.errorbar([1, 2], [3, 4], yerr=0.5, capsize=3, label='e')",
    "band": "plt.plot([1, 2]); plt.fill_between([0, 1], [0, 1], [2, 3])",
    "scatter": "plt.scatter([1, 2], [3, 4], label='a'); plt.scatter([5], [6])",
    "dots": "plt.plot([1, 2], [3, 4], 'o')",
    "trend": "plt.scatter([1, 2], [3, 4]); plt.plot([1, 2], [3, 4])",
    "scatter_dates": "plt.scatter(pd.to_datetime(['2024-01-01']), [1])",
    "bar": "plt.bar(['A', 'B'], [5, 5], label='sold'); plt.ylabel('Books (1000)')",
    "barh": "plt.barh(['A', 'B'], [5, 7]); plt.xlabel('value'); plt.ylabel('name')",
    "groups": "x = np.arange(2); plt.bar(x - 0.2, [1, 2], 0.4, label='a', yerr=0.1); plt.bar(x + 0.2, [3, 4], 0.4);"
    "plt.xticks(x, ['2019', '2020'])",
    "stacked": "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, index=['p', 'q']).plot.bar(stacked=True)",
    "histogram": "plt.hist([1, 2, 2, 3, 3, 3], bins=2)",
    "histograms": "plt.hist([[1, 3], [3, 3]], bins=2, label=['a', 'b'])",
    "pie": "plt.pie([90, 10], labels=['No', 'Yes'], autopct='%1.1f%%', explode=[0, 0.1])",
    "box": f"plt.boxplot({CLASSES}, tick_labels=['A', 'B']); plt.ylabel('Score')",
    "filled": f"plt.boxplot({CLASSES}, patch_artist=True, notch=True, showmeans=True)",
    "lying": f"plt.boxplot({CLASSES}, orientation='horizontal', showmeans=True, meanline=True); plt.xlabel('Score')",
    "several": "f, a = plt.subplots(2, 2); f.suptitle('S'); a[0, 0].plot([1]); a[0, 1].pie([1], labels=['x']);"
    "i = a[1, 0].imshow([[1]]); f.colorbar(i)",
    "image": "plt.imshow(np.zeros((3, 3)))",
    "solid": "plt.subplots(subplot_kw={'projection': '3d'})[1].scatter([1], [2], [3])",
    "mixed": "plt.bar([1, 2], [1, 2]); plt.plot([1, 2], [1, 2])",
    "empty": "plt.subplots()",
    "many": "plt.plot(np.zeros(50_001))",
    "broken": "plt.plot([1]); plt.gca().get_title = 5",
}


@pytest.fixture(scope="module")
def shown():
    return dict(zip(["import", *CELLS], show(IMPORT, *(code + "\nNone" for code in CELLS.values())), strict=True))


@pytest.fixture(scope="module")
def charts(shown):
    return {name: shown[name].bundles()[0].get(CHART) for name in CELLS}


def points(chart):
    return {element["label"]: element["points"] for element in chart["elements"]}


def test_every_one_is_a_picture_too_and_only_the_broken_one_is_told(shown):
    assert all("image/png" in shown[name].bundles()[0] for name in CELLS)
    assert [name for name in CELLS if shown[name].text("err")] == ["broken"]


def test_lines(charts):
    chart = charts["line"]
    assert (chart["type"], chart["title"]) == ("line", "T")
    assert (chart["x_label"], chart["x_unit"], chart["y_label"], chart["y_unit"]) == (
        "Time (s)",
        "s",
        "Speed [m/s]",
        "m/s",
    )
    assert points(chart) == {"squares": [[1, 1], [2, 4], [3, 9]], "Line 1": [[1, 3], [2, 3]]}
    assert (chart["x_scale"], chart["y_scale"]) == ("linear", "linear")
    assert len(chart["x_ticks"]) == len(chart["x_tick_labels"]) > 3
    assert all(float(label) == tick for tick, label in zip(chart["x_ticks"], chart["x_tick_labels"], strict=True))


def test_scales(charts):
    assert charts["log"]["y_scale"] == "log"
    assert charts["categories"]["x_scale"] == "categorical"
    assert charts["categories"]["x_tick_labels"] == ["a", "b"]
    assert points(charts["categories"]) == {"Line 0": [["a", 1], ["b", 2]]}


def test_what_is_no_number_is_null(charts):
    assert points(charts["gap"]) == {"Line 0": [[1, 1], [None, None], [3, 3]]}


def test_dates_are_iso_8601(charts):
    assert points(charts["dates"]) == {"Line 0": [["2024-01-01", 1], ["2024-01-02", 2]]}
    assert points(charts["datetime64"]) == {"Line 0": [["2024-01-01T00:00:00", 1], ["2024-01-02T00:00:00", 2]]}
    assert points(charts["periods"]) == {"s": [["2024-01-01", 1], ["2024-01-02", 2], ["2024-01-03", 3]]}
    assert points(charts["scatter_dates"]) == {"Scatter 0": [["2024-01-01T00:00:00+00:00", 1]]}
    for name in ("dates", "datetime64", "periods", "scatter_dates"):
        assert charts[name]["x_scale"] == "datetime"
        assert charts[name]["x_ticks"][0].startswith("20")


def test_helpers_around_a_line_are_no_data(charts):
    assert points(charts["errors"]) == {"e": [[1, 3], [2, 4]]}
    assert points(charts["band"]) == {"Line 0": [[0, 1], [1, 2]]}
    assert charts["errors"]["type"] == charts["band"]["type"] == "line"


def test_points(charts):
    assert points(charts["scatter"]) == {"a": [[1, 3], [2, 4]], "Scatter 1": [[5, 6]]}
    assert points(charts["dots"]) == {"Scatter 0": [[1, 3], [2, 4]]}
    assert len(points(charts["trend"])) == 2
    assert {charts[name]["type"] for name in ("scatter", "dots", "trend")} == {"scatter"}


def bars(chart):
    assert chart["type"] == "bar"
    return [(element["group"], element["label"], element["value"]) for element in chart["elements"]]


def test_bars(charts):
    assert bars(charts["bar"]) == [("sold", "A", 5), ("sold", "B", 5)]
    assert charts["bar"]["y_unit"] == "1000"
    assert bars(charts["barh"]) == [("Group 0", "A", 5), ("Group 0", "B", 7)]
    assert (charts["barh"]["x_label"], charts["barh"]["y_label"]) == ("name", "value")
    assert bars(charts["groups"]) == [
        ("a", "2019", 1),
        ("a", "2020", 2),
        ("Group 1", "2019", 3),
        ("Group 1", "2020", 4),
    ]
    assert bars(charts["stacked"]) == [("a", "p", 1), ("a", "q", 2), ("b", "p", 3), ("b", "q", 4)]
    assert [group for group, _, _ in bars(charts["histograms"])] == ["a", "a", "b", "b"]
    assert [value for _, _, value in bars(charts["histograms"])] == [1, 1, 0, 2]
    assert bars(charts["histogram"]) == [("Group 0", "1.5", 1), ("Group 0", "2.5", 5)]


def test_pies(charts):
    assert charts["pie"]["type"] == "pie"
    assert charts["pie"]["elements"] == [
        {"label": "No", "angle": 324, "radius": 1},
        {"label": "Yes", "angle": 36, "radius": 1},
    ]


@pytest.mark.parametrize(("name", "labels"), [("box", "AB"), ("filled", "12"), ("lying", "12")])
def test_boxes(charts, name, labels):
    assert charts[name]["type"] == "box_and_whisker"
    first = {"min": 78, "first_quartile": 85, "median": 88, "third_quartile": 90, "max": 92, "outliers": []}
    second = {"min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 4, "outliers": [50]}
    assert charts[name]["elements"] == [{"label": labels[0], **first}, {"label": labels[1], **second}]
    assert charts[name]["y_label"] == (None if name == "filled" else "Score")


def test_several_axes_are_a_superchart_without_the_empty_ones(charts):
    assert (charts["several"]["type"], charts["several"]["title"]) == ("superchart", "S")
    assert [chart["type"] for chart in charts["several"]["elements"]] == ["line", "pie", "unknown"]


def test_what_has_no_shape_of_its_own_is_unknown(charts):
    for name in ("image", "solid", "mixed", "broken"):
        assert charts[name] == {"type": "unknown", "title": None, "elements": []}
    assert charts["empty"] is None


def test_too_many_points_are_left_out_and_that_is_said(charts):
    assert charts["many"]["elements"] == []
    assert charts["many"]["omitted"] == "50001 points are more than the 50000 that chart data has room for"
    assert "omitted" not in charts["line"]
