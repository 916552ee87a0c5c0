"""matplotlib's figures: shown without being asked to, as pictures and as the numbers in them."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Callable, Dict, List

from . import charts, forms, mime
from .complaints import named, to_stderr

PNG = "image/png"
CHART = "application/vnd.atoll.chart+json"

_BACKEND = "MPLBACKEND"
_SHOWN = "_atoll_shown"

Show = Callable[[Any], None]


class Figures:
    """Looks after the figures of a context. `show` shows one of them."""

    def __init__(self, show: Show) -> None:
        self._show = show

    def install(self) -> Dict[str, Callable[[Any], None]]:
        """Choose a backend that needs no screen, and say what to do once parts of matplotlib are imported."""
        os.environ.setdefault(_BACKEND, "agg")
        loaded = sys.modules.get("matplotlib")
        if loaded is not None:
            loaded.rcParams["backend"] = os.environ[_BACKEND]
        return {"matplotlib.pyplot": self._prepare_pyplot, "matplotlib.figure": self._prepare_figure}

    def show_open(self) -> None:
        """At the end of a cell: show what pyplot has open, unless it was shown as it is, and close it."""
        pyplot = sys.modules.get("matplotlib._pylab_helpers")
        if pyplot is None:
            return
        try:
            if pyplot.Gcf.figs:
                self._show_and_close(pyplot.Gcf)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # the cell may have broken its pyplot
            to_stderr("the open figures cannot be shown: %s" % named(error))

    def _show_and_close(self, keeper: Any) -> None:
        figures: List[Any] = [manager.canvas.figure for manager in keeper.get_all_fig_managers()]
        try:
            for figure in figures:
                if _has_content(figure) and not _is_shown(figure):
                    self._show(figure)
        finally:
            keeper.destroy_all()

    def _prepare_pyplot(self, pyplot: Any) -> None:
        def show(*_args: Any, **_options: Any) -> None:
            """Show all open figures, and close them."""
            self.show_open()

        pyplot.show = dressed(show, "matplotlib.pyplot", "show")

    def _prepare_figure(self, module: Any) -> None:
        def show(figure: Any, *_args: Any, **_options: Any) -> None:
            """Show the figure as it is now."""
            self._show(figure)

        module.Figure.show = dressed(show, "matplotlib.figure", "Figure.show")


def is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and forms.is_of(value, module.Figure)


def forms_of(figure: Any) -> Dict[str, Any]:
    """A picture of a figure, and its chart data. What the drawing warns of is told without where, which is here."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        drawn = _drawn(figure)
    for line in sorted({"%s: %s" % (warning.category.__name__, warning.message) for warning in caught}):
        to_stderr(line)
    return drawn


def _drawn(figure: Any) -> Dict[str, Any]:
    stream = io.BytesIO()
    figure.canvas.print_figure(
        stream,
        format="png",
        dpi=figure.dpi,
        facecolor=figure.get_facecolor(),
        edgecolor=figure.get_edgecolor(),
        bbox_inches="tight",
    )
    drawn = {PNG: mime.fit(PNG, stream.getvalue())}
    chart = charts.chart_of(figure)
    if chart is not None:
        drawn[CHART] = chart
    setattr(figure, _SHOWN, True)
    figure.stale = False  # whatever is drawn into it from now on makes it stale again
    return drawn


def dressed(function: Any, module: str, name: str) -> Any:
    """A replacement that is known by the name of what it replaces, so that it can be pickled as that."""
    function.__module__, function.__qualname__ = module, name
    return function


def _has_content(figure: Any) -> bool:
    return bool(figure.axes or figure.lines or figure.texts or figure.images or figure.patches)


def _is_shown(figure: Any) -> bool:
    return getattr(figure, _SHOWN, False) and not figure.stale
