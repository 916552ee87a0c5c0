"""What values of well-known libraries look like, and the ways in which these libraries show them."""

import base64
import io

import pytest
from PIL import Image
from tests.guest.showing import show

PLOTLY = "application/vnd.plotly.v1+json"


def test_pandas():
    frame, series, styled, columns = show(
        "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], '_repr_png_': [3, 4]})\ndf",
        "df['a']",
        "df.style.highlight_max()",
        "df.columns",
    )
    assert list(frame.only) == ["text/plain", "text/html"]
    assert frame.only["text/html"].count("<td>") == 4
    assert frame.only["text/plain"].startswith("   a  _repr_png_")
    assert list(series.only) == ["text/plain"]
    assert "<style" in styled.only["text/html"]
    assert list(columns.only) == ["text/plain"]


def test_pillow():
    main, shown, transparent = show(
        "from PIL import Image\nimage = Image.new('RGB', (5, 7), 'red')\nimage", "image.show()", "image.convert('RGBA')"
    )
    for bundle in (main.main, shown.bundles("side")[0]):
        assert list(bundle) == ["text/plain", "image/png", "image/jpeg"]
        png = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"], validate=True)))
        assert (png.format, png.size, png.getpixel((0, 0))) == ("PNG", (5, 7), (255, 0, 0))
    assert "image/png" in transparent.only


def test_sympy():
    _, shown, matrix = show("import sympy", "sympy.Symbol('x') ** 2", "sympy.Matrix([[1, 2]])")
    assert shown.only == {"text/plain": "x**2", "text/latex": "$\\displaystyle x^{2}$"}
    assert sorted(matrix.only) == ["text/latex", "text/plain"]


def test_plotly_gives_its_json_whatever_renderer_is_set_and_opens_no_browser():
    spy = (
        "import webbrowser\n"
        "def opened(*args, **kwargs): raise AssertionError('a browser')\n"
        "webbrowser.get = webbrowser.open = opened\n"
        "import plotly.graph_objects as go, plotly.io as pio, numpy as np\n"
        "fig = go.Figure(go.Bar(y=[1, 2]), layout={'title': {'text': 'T'}})"
    )
    _, *shown = show(
        spy,
        "fig",
        "fig.show()",
        "fig.show(renderer='browser')",
        "pio.show(fig)",
        "pio.show(fig.to_dict())",
        "pio.renderers.default = 'browser'\nfig",
        "fig.show('png')",
        "display(fig)",
        "import plotly.express as px\npx.line(y=np.arange(3))",
    )
    for each in shown:
        assert list(each.only) == ["text/plain", PLOTLY]
    for each in shown[:-1]:
        assert each.only[PLOTLY]["data"] == [{"type": "bar", "y": [1, 2]}]
        assert each.only[PLOTLY]["layout"]["title"] == {"text": "T"}
    assert shown[0].order == ["main"]
    assert shown[1].order == ["side"]


def test_altair_gives_its_specification():
    chart, broken = show(
        "import altair as alt\nc = alt.Chart(alt.Data(values=[{'a': 1}])).mark_point()\nc.encode(x='a:Q')",
        "c.encode(x='a')",
    )
    (kind,) = [kind for kind in chart.only if kind.startswith("application/vnd.vegalite.v")]
    assert chart.only[kind]["encoding"] == {"x": {"field": "a", "type": "quantitative"}}
    assert f"/vega-lite/{kind[len('application/vnd.vegalite.') : -len('+json')]}." in chart.only[kind]["$schema"]
    assert "text/plain" in chart.only
    assert "text/plain" in broken.main
    assert broken.order[-1] == "main"


@pytest.fixture(scope="module")
def ipython():
    cells = {
        "none": "import IPython\nfrom IPython.display import *\nprint(IPython.get_ipython())",
        "objects": "display(HTML('<b>'), Markdown('*m*'), Latex('$x$'), JSON({'a': 1}), Javascript('f()'))",
        "math": "Math('x')",
        "image": "Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(30))",
        "own": "GeoJSON({'type': 'Point'})",
        "published": "publish_display_data({'text/html': '<i>'}, metadata={})",
        "handle": "h = display('one', display_id=True); h.update('two'); update_display('three', display_id='x')",
        "cleared": "clear_output(wait=True); print('x')",
        "pickled": "import pickle\npickle.loads(pickle.dumps(display)) is display",
        "plotly": "import plotly.graph_objects as go\ndisplay(go.Figure(go.Bar(y=[1])))",
        "matplotlib": "import matplotlib.pyplot as plt\nplt.plot([1])\ndisplay(plt.gcf())",
    }
    return dict(zip(cells, show(*cells.values()), strict=True))


def test_ipython_is_there_without_a_shell(ipython):
    assert ipython["none"].log[0] == ("out", "None")
    assert ipython["none"].bundles() == []


def test_ipythons_objects_are_shown(ipython):
    bundles = ipython["objects"].bundles("side")
    assert [list(bundle.items())[1] for bundle in bundles] == [
        ("text/html", "<b>"),
        ("text/markdown", "*m*"),
        ("text/latex", "$x$"),
        ("application/json", {"a": 1}),
        ("application/javascript", "f()"),
    ]
    assert ipython["math"].main["text/latex"] == "$\\displaystyle x$"
    assert base64.b64decode(ipython["image"].main["image/png"]).startswith(b"\x89PNG")
    assert ipython["own"].bundles("side")[0]["application/geo+json"] == {"type": "Point"}


def test_ipythons_functions_come_to_the_same_place(ipython):
    assert ipython["published"].only == {"text/html": "<i>"}
    assert [bundle["text/plain"] for bundle in ipython["handle"].bundles()] == ["'one'", "'two'", "'three'"]
    assert ipython["cleared"].order == ["out"]
    assert ipython["cleared"].text("out") == "x\n"
    assert ipython["pickled"].only == {"text/plain": "True"}
    assert list(ipython["plotly"].only) == ["text/plain", PLOTLY]
    assert ipython["matplotlib"].order == ["side"]
    assert "image/png" in ipython["matplotlib"].only
