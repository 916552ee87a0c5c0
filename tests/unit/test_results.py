"""Displayed values on the host's side."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from atoll.client import answers
from atoll.errors import ProtocolError
from atoll.types import Result

BUNDLE = {
    "text/plain": "t",
    "text/html": '<b class="x">&amp;</b><script>steal()</script>',
    "text/markdown": "m",
    "text/latex": "$x$",
    "image/svg+xml": "<svg/>",
    "application/javascript": "f()",
    "image/png": "UE5H",
    "image/jpeg": "SlBFRw==",
    "application/pdf": "UERG",
    "application/json": [1],
    "application/vnd.atoll.chart+json": {"type": "line"},
    "application/vnd.plotly.v1+json": {"data": []},
    "application/vnd.vegalite.v6+json": {"mark": "point"},
}


def test_each_form_has_its_property():
    result = Result(BUNDLE)
    assert result.formats == tuple(BUNDLE)
    assert (result.text, result.html, result.markdown) == ("t", BUNDLE["text/html"], "m")
    assert (result.latex, result.svg, result.javascript) == ("$x$", "<svg/>", "f()")
    assert (result.png, result.jpeg, result.pdf) == (b"PNG", b"JPEG", b"PDF")
    assert (result.json, result.chart, result.plotly) == ([1], {"type": "line"}, {"data": []})
    assert result.vega == {"mark": "point"}


def test_base64_may_have_line_ends():
    assert answers.result({"result": {"image/png": "UE\n5H\n"}, "main": True}).png == b"PNG"


def test_a_form_that_is_not_there_is_none():
    result = Result({})
    names = ("text", "html", "markdown", "latex", "svg", "javascript", "png", "jpeg", "pdf", "json", "chart", "plotly")
    assert {getattr(result, name) for name in (*names, "vega")} == {None}
    assert result.formats == ()
    assert result._repr_html_() is None
    assert result._repr_mimebundle_() == {}


@pytest.mark.parametrize("bad", ["?", "A", "UE=5H", 5, None, ["x"], "é"])
def test_data_that_is_not_base64_is_refused(bad):
    with pytest.raises(ProtocolError, match="image/png"):
        answers.result({"result": {"image/png": bad}, "main": True})
    if bad is not None:
        with pytest.raises(ValueError, match="image/png of this result is not base64"):
            _ = Result({"image/png": bad}).png


@pytest.mark.parametrize(
    "mime",
    [
        "text/plain",
        "text/html",
        "text/x-own",
        "image/svg+xml",
        "application/javascript",
        "application/pdf",
        "image/jpeg",
    ],
)
def test_a_text_that_is_none_is_refused(mime):
    for bad in (5, None, ["x"], {}):
        with pytest.raises(ProtocolError, match=mime.replace("+", r"\+")):
            answers.result({"result": {mime: bad}, "main": True})


@pytest.mark.parametrize("mime", [mime for mime, data in BUNDLE.items() if type(data) is dict])
def test_an_object_that_is_none_is_refused(mime):
    with pytest.raises(ProtocolError, match="an object"):
        answers.result({"result": {mime: []}, "main": True})


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["UE5H", "UE5H\n", "A==="]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_PROMISED = {"json": object, "chart": dict, "plotly": dict, "vega": dict, "png": bytes, "jpeg": bytes, "pdf": bytes}
_PROMISED |= dict.fromkeys(("text", "html", "markdown", "latex", "svg", "javascript"), str)


@given(st.dictionaries(st.sampled_from([*BUNDLE, "application/x-other", ""]), _ANYTHING, max_size=4))
def test_whatever_a_guest_says_is_refused_or_is_what_the_properties_promise(bundle):
    try:
        result = answers.result({"result": bundle, "main": True})
    except ProtocolError:
        return
    for name, kind in _PROMISED.items():
        value = getattr(result, name)
        assert value is None or isinstance(value, kind)
    assert all(isinstance(data, str) for mime, data in result._repr_mimebundle_().items() if mime != "application/json")


def test_a_good_bundle_is_taken_as_it_is():
    assert answers.result({"result": BUNDLE, "main": False}) == Result(BUNDLE, is_main=False)


def test_a_notebook_shows_only_what_can_do_no_harm_in_it():
    shown = Result(BUNDLE)._repr_mimebundle_()
    assert sorted(shown) == ["application/json", "image/jpeg", "image/png", "text/html", "text/plain"]
    assert shown["image/png"] == "UE5H"


def test_html_comes_in_a_frame_that_it_cannot_leave():
    html = Result({"text/html": BUNDLE["text/html"] + '"></iframe><script>'})._repr_html_()
    assert html is not None
    assert html.startswith('<iframe sandbox srcdoc="<meta http-equiv=&quot;Content-Security-Policy&quot;')
    inside = html[len('<iframe sandbox srcdoc="') :]
    end = inside.index('"')
    assert inside[end:].startswith('" style="')
    page = inside[:end].replace("&quot;", '"').replace("&amp;", "&")
    assert page.endswith(BUNDLE["text/html"] + '"></iframe><script>')
