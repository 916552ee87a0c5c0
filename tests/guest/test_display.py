"""What a cell shows: the bundles of its values, without any library."""

import glob
import sys

import pytest
from tests.guest.showing import show

OLDEST = sorted(glob.glob("/root/.pyenv/versions/3.8.*/bin/python3.8"))
PYTHONS = [sys.executable, *OLDEST]

EVERY_FORM = """
class Every:
    def __repr__(self): return "every"
    def _repr_html_(self): return "<b>é</b>"
    def _repr_markdown_(self): return "*m*"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_jpeg_(self): return bytearray(b"JPEG")
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": [1, None]}
    def _repr_javascript_(self): return "alert()"
    def _repr_pdf_(self): return b"%PDF"
"""
FORMS = {
    "text/plain": "every",
    "text/html": "<b>é</b>",
    "text/markdown": "*m*",
    "image/svg+xml": "<svg/>",
    "image/png": "iVBORw==",
    "image/jpeg": "SlBFRw==",
    "text/latex": "$x$",
    "application/json": {"a": [1, None]},
    "application/javascript": "alert()",
    "application/pdf": "JVBERg==",
}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_form_that_an_object_offers_is_in_its_bundle(python):
    _, main, side = show(EVERY_FORM, "Every()", "display(Every())", python=python)
    assert main.log == [("main", FORMS)]
    assert side.log == [("side", FORMS)]


def test_values_of_plain_types_are_texts():
    for shown, expected in zip(show("1", "'a'", "[1]"), ("1", "'a'", "[1]"), strict=True):
        assert shown.log == [("main", {"text/plain": expected})]
    shown = show("None", "int", "display(None)")
    assert [each.log for each in shown] == [
        [],
        [("main", {"text/plain": "<class 'int'>"})],
        [("side", {"text/plain": "None"})],
    ]


@pytest.mark.parametrize("python", PYTHONS)
def test_nothing_is_imported_for_showing(python):
    (shown,) = show("class A: pass\ndisplay(A(), 1)\nA()", python=python)
    loaded = {name.partition(".")[0] for name in shown.modules}
    assert not loaded & {"matplotlib", "numpy", "pandas", "PIL", "plotly", "altair", "IPython", "sympy", "atoll"}
    assert not loaded & {"threading", "subprocess", "asyncio", "logging", "inspect", "uuid", "dataclasses"}


BUNDLES = """
class Bundled:
    def __init__(self, given): self.given = given
    def __repr__(self): return "bundled"
    def _repr_mimebundle_(self, include=None, exclude=None):
        self.asked = (include, exclude)
        return self.given
    def _repr_html_(self): return "its own"
"""


def test_a_bundle_comes_before_the_single_forms_and_may_have_metadata():
    _, one, two, three, four = show(
        BUNDLES,
        "Bundled({'text/html': 'from the bundle', 'text/x-a': 'a'})",
        "Bundled(({'application/x-b+json': {'b': 1}, 'image/gif': b'GIF', 'text/plain': 'told'}, {'image/gif': {}}))",
        "Bundled(None)",
        "Bundled({'text/html': None, 'image/svg+xml': b'<svg/>'})",
    )
    assert one.only == {"text/plain": "bundled", "text/html": "from the bundle", "text/x-a": "a"}
    assert two.only == {
        "text/plain": "told",
        "application/x-b+json": {"b": 1},
        "image/gif": "R0lG",
        "text/html": "its own",
    }
    assert three.only == {"text/plain": "bundled", "text/html": "its own"}
    assert four.only == {"text/plain": "bundled", "image/svg+xml": "<svg/>", "text/html": "its own"}


def test_include_and_exclude_choose_and_are_handed_on():
    _, include, exclude, asked = show(
        EVERY_FORM + BUNDLES,
        "display(Every(), include=['text/html', 'image/png'])",
        "display(Every(), exclude={'text/plain', 'image/png', 'image/jpeg', 'application/pdf', 'application/json'})",
        "b = Bundled({'text/html': 'x', 'text/x-a': 'a'}); display(b, include=['text/x-a'])\nb.asked",
    )
    assert sorted(include.only) == ["image/png", "text/html"]
    assert sorted(exclude.only) == sorted(
        FORMS.keys() - {"text/plain", "image/png", "image/jpeg", "application/pdf", "application/json"}
    )
    assert asked.log[0] == ("side", {"text/x-a": "a"})
    assert asked.main == {"text/plain": "(['text/x-a'], None)"}


def test_a_form_that_fails_loses_only_itself_and_is_told_in_one_line():
    broken = (
        "class Broken:\n"
        "    def __repr__(self): return 'broken'\n"
        "    def _repr_html_(self): raise ValueError('bad\\nluck')\n"
        "    def _repr_png_(self): return 5\n"
        "    def _repr_jpeg_(self): return 'no base64!'\n"
        "    def _repr_json_(self): return {1, 2}\n"
        "    def _repr_markdown_(self): raise NotImplementedError\n"
        "    def _repr_svg_(self): raise BaseException('base')\n"
        "    def _repr_latex_(self): return '$ok$'\n"
        "Broken()"
    )
    (shown,) = show(broken)
    assert shown.main == {"text/plain": "broken", "text/latex": "$ok$"}
    assert shown.text("err").splitlines() == [
        "_repr_html_ of Broken failed: ValueError: bad luck",
        "_repr_svg_ of Broken failed: BaseException: base",
        "image/png cannot be shown: image/png must be bytes, not int",
        "image/jpeg cannot be shown: image/jpeg must be bytes, or base64 in a str",
        "application/json cannot be shown: it is no JSON: Object of type set is not JSON serializable",
    ]


def test_a_repr_that_fails_is_told():
    first, second, third = show(
        "class A:\n    def __repr__(self): raise ValueError('why')\nA()",
        "class B:\n    def __repr__(self): return 5\nB()",
        "class E(Exception):\n    def __str__(self): raise E\nclass C:\n    def __repr__(self): raise E\n[C()]",
    )
    assert first.only == {"text/plain": "<A whose repr failed: why>"}
    assert second.only["text/plain"].startswith("<B whose repr failed: __repr__ returned non-string")
    assert third.only == {"text/plain": "<list whose repr failed: <its text cannot be shown>>"}


def test_objects_that_answer_to_every_name_offer_nothing():
    answering = (
        "class Yes:\n"
        "    def __getattr__(self, name): return lambda *a, **k: 'fooled'\n"
        "    def __repr__(self): return 'yes'\n"
        "Yes()"
    )
    meta = (
        "class Meta(type):\n"
        "    def __getattr__(cls, name): return lambda *a, **k: 'fooled'\n"
        "    __mro__ = __name__ = __dict__ = property(lambda cls: 1 / 0)\n"
        "class Odd(metaclass=Meta):\n"
        "    def __repr__(self): return 'odd'\n"
        "Odd()"
    )
    lying = (
        "class Liar:\n"
        "    __class__ = property(lambda self: 1 / 0)\n"
        "    def __getattribute__(self, name): raise MemoryError(name)\n"
        "    def __repr__(self): return 'liar'\n"
        "Liar()"
    )
    names = (
        "class Name(str):\n"
        "    __hash__ = str.__hash__\n"
        "    def __eq__(self, other): raise BaseException('eq')\n"
        "Named = type('Named', (), {Name('_repr_html_'): 5, '__repr__': lambda self: 'named'})\n"
        "Named()"
    )
    (named,) = show(names)
    assert named.main == {"text/plain": "named"}
    mock, yes, odd, liar = show("from unittest.mock import MagicMock\nMagicMock(name='m')", answering, meta, lying)
    assert list(mock.only) == ["text/plain"]
    assert yes.only == {"text/plain": "yes"}
    assert odd.only == {"text/plain": "odd"}
    assert liar.only == {"text/plain": "liar"}


def test_a_class_is_not_asked_for_what_its_instances_offer():
    _, shown, control = show(EVERY_FORM, "Every", "Every()")
    assert shown.only == {"text/plain": "<class '__main__.Every'>"}
    assert len(control.only) == len(FORMS)


def test_a_method_that_a_subclass_takes_back_is_not_called():
    _, shown = show(EVERY_FORM, "class Less(Every):\n    _repr_html_ = None\nLess()")
    assert "text/html" not in shown.only
    assert "text/latex" in shown.only


def test_leaving_from_inside_a_form_is_the_cells_own_will():
    code = "class A:\n    def _repr_html_(self): raise {}\nA()"
    first, second = show(code.format("SystemExit(3)"), code.format("KeyboardInterrupt"))
    assert first.log == [("error", "SystemExit: 3")]
    assert second.log == [("error", "KeyboardInterrupt: ")]


def test_json_is_plain_and_has_no_nan():
    code = (
        "import collections\n"
        "class J:\n"
        "    def __init__(self, given): self.given = given\n"
        "    def __repr__(self): return ''\n"
        "    def _repr_json_(self): return self.given\n"
        "J(collections.OrderedDict(a=float('nan'), b=(1, float('inf')), c={1: True}))"
    )
    shown = show(code, "J('{\"a\": 1}')", "J('no json')", "a = []; a.append(a); J(a)")
    assert shown[0].only["application/json"] == {"a": None, "b": [1, None], "c": {"1": True}}
    assert shown[1].only["application/json"] == {"a": 1}
    assert shown[2].only["application/json"] == "no json"
    assert "application/json" not in shown[3].main
    assert "Circular reference" in shown[3].text("err")


def test_texts_are_bounded_and_that_is_said():
    (short,) = show("'x' * 400_000")
    assert len(short.only["text/plain"]) == 400_002
    assert not short.truncated
    (long,) = show("'✓' * 600_000")
    assert 50_000 < len(long.only["text/plain"]) <= 500_000 // 6
    assert long.truncated


def test_display_shows_at_once_and_in_order():
    (shown,) = show("print(1); display('a', 2); print(3); display(); 4")
    assert [entry for entry in shown.log if entry[0] != "out"] == [
        ("side", {"text/plain": "'a'"}),
        ("side", {"text/plain": "2"}),
        ("main", {"text/plain": "4"}),
    ]
    assert shown.order == ["out", "side", "side", "out", "main"]


def test_display_takes_raw_bundles():
    first, second, third = show(
        "display({'text/html': '<b>', 'image/png': b'PNG', 'text/plain': 't'}, raw=True)",
        "display({'text/html': 7, 8: 'x', 'text/plain': 't'}, raw=True)",
        "display([1], raw=True)",
    )
    assert first.only == {"text/html": "<b>", "image/png": "UE5H", "text/plain": "t"}
    assert second.bundles() == [{"text/plain": "t"}]
    assert len(second.text("err").splitlines()) == 2
    assert third.log == [("error", "TypeError: display(raw=True) takes dicts from MIME type to data, not list")]


def test_a_display_id_gives_a_handle_whose_update_shows_again():
    (shown,) = show("h = display(1, display_id='mine'); h.update(2); (h.display_id, display(3, display_id=True) is h)")
    assert shown.bundles("side") == [{"text/plain": "1"}, {"text/plain": "2"}, {"text/plain": "3"}]
    assert shown.main == {"text/plain": "('mine', False)"}


def test_an_object_may_show_itself():
    code = "class Own:\n    def _ipython_display_(self): {}\n    def __repr__(self): return 'own'\nOwn()"
    first, second = show(code.format("display('mine')"), code.format("1 / 0"))
    assert first.log == [("side", {"text/plain": "'mine'"})]
    assert second.main == {"text/plain": "own"}
    assert second.text("err") == "_ipython_display_ of Own failed: ZeroDivisionError: division by zero\n"


def test_a_broken_stderr_breaks_nothing():
    shown = show("import sys\nsys.stderr = None", "class A:\n    def _repr_html_(self): 1 / 0\nA()", "5")
    assert list(shown[1].main) == ["text/plain"]
    assert shown[2].only == {"text/plain": "5"}


def test_display_and_its_kind_can_be_pickled_by_name():
    (shown,) = show("import pickle\npickle.loads(pickle.dumps(display)) is display")
    assert shown.only == {"text/plain": "True"}
