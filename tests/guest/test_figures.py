"""matplotlib's figures show themselves."""

import base64
import struct

import pytest
from tests.guest.showing import show

CHART = "application/vnd.atoll.chart+json"
IMPORT = "import matplotlib.pyplot as plt, os, subprocess, sys"
CELLS = {
    "open": "plt.plot([1, 2]);\nNone",
    "two": "plt.figure(1); plt.plot([1]); plt.figure(2); plt.plot([2]);\nNone",
    "main": "fig, ax = plt.subplots(); ax.plot([3, 1]);\nfig",
    "again": "fig",
    "axes": "plt.subplot()",
    "show": "print('a'); plt.plot([1]); plt.show(); print('b'); plt.plot([2]); plt.show(block=False); print('c')",
    "fig_show": "f = plt.figure(); plt.plot([1]); f.show(); print('after'); plt.savefig('later.png')",
    "changed": "f = plt.figure(); plt.plot([1]); f.show(); plt.title('new');\nNone",
    "display": "f = plt.figure(); plt.plot([1]); display(f); print('after')",
    "raises": "plt.plot([1]); 1 / 0",
    "savefig": "plt.plot([1]); plt.savefig('x.png'); plt.close(); os.path.getsize('x.png') > 1000",
    "closed": "plt.get_fignums()",
    "blank": "plt.figure();\nNone",
    "broken": "plt.plot([1]); plt.title('$\\\\bad$'); plt.figure(); plt.plot([2]);\nNone",
    "after_broken": "plt.get_fignums()",
    "unmanaged": "from matplotlib.figure import Figure\ng = Figure(); g.subplots().plot([1]); g",
    "bare": "g.subplots().plot([1]); None",
    "pylab": "from pylab import *\nplot([1]); show()",
    "leaves": "class L:\n    def __repr__(self): raise SystemExit\nplt.plot([1])\nL()",
    "dpi": "plt.figure(figsize=(4, 3), dpi=50); plt.axes([0, 0, 1, 1]); plt.plot([1]);\nNone",
    "subprocess": "subprocess.run([sys.executable, '-c', 'import matplotlib.pyplot as p; p.plot([1]);"
    ' p.savefig("y.png"); print(p.get_backend())\'], capture_output=True, text=True).stdout',
    "backend": "plt.get_backend().lower()",
    "glyphs": "plt.figure(); plt.title('汉汉'); plt.plot([1]);\nNone",
    "pickled": "import pickle\npickle.loads(pickle.dumps(plt.show)) is plt.show",
    "lying": "class Liar:\n    __class__ = property(lambda self: 1 / 0)\n    def __repr__(self): return 'liar'\nLiar()",
    "hostile": "import matplotlib._pylab_helpers as h\nplt.plot([1]); h.Gcf.get_all_fig_managers = 5;\nNone",
}


@pytest.fixture(scope="module")
def shown():
    return dict(zip(["import", *CELLS], show(IMPORT, *CELLS.values()), strict=True))


def size_of(bundle):
    png = base64.b64decode(bundle["image/png"], validate=True)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


def is_picture(bundle):
    return list(bundle) == ["text/plain", "image/png", CHART] and min(size_of(bundle)) > 100


def test_figures_that_are_open_at_the_end_of_a_cell_are_shown_and_closed(shown):
    assert is_picture(shown["open"].only)
    assert shown["open"].order == ["side"]
    assert shown["open"].only["text/plain"] == "<Figure size 640x480 with 1 Axes>"
    assert [is_picture(bundle) for bundle in shown["two"].bundles("side")] == [True, True]
    assert shown["closed"].only == {"text/plain": "[]"}


def test_a_figure_that_is_the_last_expression_is_shown_once(shown):
    assert shown["main"].order == ["main"]
    assert is_picture(shown["main"].only)
    assert shown["again"].order == ["main"]
    assert is_picture(shown["again"].only)
    assert shown["axes"].order == ["main", "side"]


def test_showing_happens_at_once_between_the_output(shown):
    assert shown["show"].order == ["out", "side", "out", "side", "out"]
    assert [bundle[CHART]["elements"][0]["points"] for bundle in shown["show"].bundles()] == [[[0, 1]], [[0, 2]]]
    assert shown["fig_show"].order == ["side", "out"]
    assert shown["display"].order == ["side", "out"]
    assert shown["pylab"].order == ["side"]


def test_a_figure_that_changed_since_it_was_shown_is_shown_again(shown):
    assert [bundle[CHART]["title"] for bundle in shown["changed"].bundles()] == [None, "new"]


def test_figures_of_a_cell_that_raised_are_shown(shown):
    assert shown["raises"].order == ["error", "side"]
    assert is_picture(shown["raises"].bundles()[0])
    assert shown["leaves"].order == ["error", "side"]


def test_saving_works_and_a_closed_figure_is_not_shown(shown):
    assert shown["savefig"].only == {"text/plain": "True"}


def test_a_figure_with_nothing_in_it_is_not_shown(shown):
    assert shown["blank"].log == []


def test_a_figure_that_cannot_be_drawn_is_told_and_the_others_are_shown(shown):
    first, second = shown["broken"].bundles()
    assert list(first) == ["text/plain"]
    assert is_picture(second)
    assert shown["broken"].text("err").startswith("Figure cannot be shown: ValueError:")
    assert len(shown["broken"].text("err").splitlines()) == 1
    assert shown["after_broken"].only == {"text/plain": "[]"}


def test_a_figure_that_pyplot_does_not_know_is_shown_when_asked_only(shown):
    assert is_picture(shown["unmanaged"].only)
    assert shown["bare"].log == []


def test_what_the_drawing_warns_of_is_told_in_one_line(shown):
    assert is_picture(shown["glyphs"].bundles()[0])
    (line,) = shown["glyphs"].text("err").splitlines()
    assert line.startswith("UserWarning: Glyph 27721")
    assert "guest" not in line


def test_the_size_is_that_of_the_figure(shown):
    """About: the margins are cut off, or made large enough for the labels."""
    width, height = size_of(shown["dpi"].only)
    assert 180 < width < 260
    assert 130 < height < 200
    width, height = size_of(shown["open"].only)
    assert 500 < width < 680
    assert 400 < height < 520


def test_the_backend_needs_no_screen_here_and_in_subprocesses(shown):
    assert shown["backend"].only == {"text/plain": "'agg'"}
    assert "agg" in shown["subprocess"].only["text/plain"].lower()


def test_a_backend_that_the_environment_names_is_kept():
    # -I leaves other variables than Python's own alone
    _, backend, figure = show(
        "import matplotlib.pyplot as plt",
        "plt.get_backend().lower()",
        "plt.plot([1]);\nNone",
        env={"MPLBACKEND": "svg"},
    )
    assert backend.only == {"text/plain": "'svg'"}
    assert is_picture(figure.only)


def test_nothing_else_was_said(shown):
    quiet = [name for name in CELLS if name not in ("broken", "hostile", "glyphs")]
    assert {name: shown[name].text("err") for name in quiet if shown[name].text("err")} == {}


def test_a_pyplot_that_the_cell_broke_breaks_nothing(shown):
    assert shown["hostile"].bundles() == []
    assert "the open figures cannot be shown" in shown["hostile"].text("err")
    assert shown["lying"].only == {"text/plain": "liar"}


def test_replaced_functions_are_still_known_by_their_names(shown):
    assert shown["pickled"].only == {"text/plain": "True"}
