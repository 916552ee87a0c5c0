"""What some libraries need so that their objects show themselves in a sandbox, where there is no screen or browser."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict

from . import forms, mime
from .complaints import Complain, name_of, named
from .figures import dressed, forms_of as figure_forms, is_figure

PLOTLY = "application/vnd.plotly.v1+json"

Display = Callable[..., Any]


def hooks(display: Display) -> Dict[str, Callable[[Any], None]]:
    """What to do once a library is imported, so that its own way to show something comes to `display`."""
    return {
        "IPython.core.display_functions": lambda module: _prepare_ipython(module, display),
        "plotly.basedatatypes": lambda module: _prepare_plotly(module, display),
        "plotly.io._renderers": lambda module: _prepare_renderers(module, display),
        "PIL.ImageShow": lambda module: _prepare_pillow(module, display),
    }


def _prepare_ipython(module: Any, display: Display) -> None:
    """Without a shell, which a context has not, IPython would only print."""

    def shown(*values: Any, **options: Any) -> Any:
        return display(*values, **options)

    def published(data: Any, *_rest: Any, **_options: Any) -> None:
        display(data, raw=True)

    def updated(value: Any, *, display_id: str, **options: Any) -> None:
        display(value, display_id=display_id, **options)

    def cleared(*_args: Any, **_options: Any) -> None:
        """What was sent stays."""

    replacements = (
        ("display", shown),
        ("publish_display_data", published),
        ("update_display", updated),
        ("clear_output", cleared),
    )
    for name, function in replacements:
        setattr(module, name, dressed(function, "IPython.core.display_functions", name))


def _prepare_plotly(module: Any, display: Display) -> None:
    def show(figure: Any, *_args: Any, **_options: Any) -> None:
        """Show the figure, whatever renderer is set."""
        display(figure)

    module.BaseFigure.show = dressed(show, "plotly.basedatatypes", "BaseFigure.show")


def _prepare_renderers(module: Any, display: Display) -> None:
    def show(fig: Any, *_args: Any, **_options: Any) -> None:
        """Show the figure, whatever renderer is set."""
        figure = sys.modules["plotly.basedatatypes"].BaseFigure
        display(fig if forms.is_of(fig, figure) else sys.modules["plotly.graph_objs"].Figure(fig))

    module.show = dressed(show, "plotly.io._renderers", "show")


def _prepare_pillow(module: Any, display: Display) -> None:
    def show(image: Any, *_args: Any, **_options: Any) -> bool:
        display(image)
        return True

    module.show = dressed(show, "PIL.ImageShow", "show")


def takes_over(value: Any) -> bool:
    """Whether the object shows itself by calling `display`. plotly's would start a browser."""
    return forms.goes_its_own_way(value) and not _is_plotly(value)


def forms_of(value: Any, complain: Complain, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
    """As `forms.forms_of`, and also for objects that do not offer, or not well, what is best in them."""
    try:
        if is_figure(value):
            return mime.wanted(figure_forms(value), include, exclude)
        if _is_plotly(value):
            return mime.wanted({PLOTLY: mime.fit(PLOTLY, value.to_json())}, include, exclude)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  # its text can still be shown
        complain("%s cannot be shown: %s" % (name_of(type(value)), named(error)))
        return {}
    offered = forms.forms_of(value, complain, include, exclude)
    if _is_altair(value):
        offered.update(mime.wanted(_vega(value, complain), include, exclude))
    return offered


def _is_plotly(value: Any) -> bool:
    module = sys.modules.get("plotly.basedatatypes")
    return module is not None and forms.is_of(value, module.BaseFigure)


def _is_altair(value: Any) -> bool:
    module = sys.modules.get("altair")
    return module is not None and forms.is_of(value, module.TopLevelMixin)


def _vega(chart: Any, complain: Complain) -> Dict[str, Any]:
    """The specification, under the MIME type of the version that it names."""
    try:
        specification = chart.to_dict()
        language, _, version = specification["$schema"].split("/schema/")[1].partition("/")
        kind = "application/vnd.%s.%s+json" % (language.replace("-", ""), version.split(".")[0])
        return {kind: mime.fit(kind, specification)}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  # a chart that is not complete
        complain("%s has no Vega specification: %s" % (name_of(type(chart)), named(error)))
        return {}
