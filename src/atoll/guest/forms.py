"""The forms in which an object offers to show itself: its methods with names such as `_repr_html_`."""

from __future__ import annotations

from typing import Any, Collection, Dict, Optional, Tuple

from . import mime
from .complaints import Complain, name_of, named

_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
    ("application/pdf", "_repr_pdf_"),
)
_BUNDLE = "_repr_mimebundle_"
_OWN_WAY = "_ipython_display_"
_NAMES = frozenset([_BUNDLE, _OWN_WAY, *(name for _, name in _METHODS)])

# What a type says of itself, whatever its metaclass says.
_ancestry = type.__dict__["__mro__"].__get__
_members = type.__dict__["__dict__"].__get__


def offers_any(value: Any) -> bool:
    """Quickly: whether it can have any form but its text."""
    try:
        for kind in _ancestry(type(value)):
            if kind is not object and not _NAMES.isdisjoint(_members(kind)):
                return True
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001  # names in a class may be objects with a will of their own
        return True
    return False


def forms_of(
    value: Any, complain: Complain, include: Optional[Collection[str]] = None, exclude: Optional[Collection[str]] = None
) -> Dict[str, Any]:
    """What the object's own methods offer, without the text that every value has.

    A method that fails loses its own form only, and is told to `complain`. Methods count when the object's type has
    them: an object that answers to every name, as mocks do, offers nothing. Neither does a class.
    """
    mro = _ancestry(type(value))
    if is_of(value, type):
        return {}
    offered: Dict[str, Any] = {}
    if _has(mro, _BUNDLE):
        found = _ask(value, _BUNDLE, complain, include=include, exclude=exclude)
        if found is not None:
            offered = mime.wanted(mime.fit_bundle(found, complain), include, exclude)
    for kind, method in _METHODS:
        if kind not in offered and _has(mro, method) and mime.is_wanted(kind, include, exclude):
            found = _ask(value, method, complain)
            if found is not None:
                mime.add(offered, kind, found, complain)
    return offered


def is_of(value: Any, kind: Any) -> bool:
    """As isinstance, without asking the object, which may lie."""
    return any(base is kind for base in _ancestry(type(value)))


def goes_its_own_way(value: Any) -> bool:
    """Whether it shows itself by calling `display`."""
    return not is_of(value, type) and _has(_ancestry(type(value)), _OWN_WAY)


def _has(mro: Tuple[type, ...], name: str) -> bool:
    for kind in mro:
        members = _members(kind)
        if name in members:
            return members[name] is not None
    return False


def _ask(value: Any, name: str, complain: Complain, **arguments: Any) -> Any:
    """What a method gives, without the metadata that may come along; None when it has nothing to give."""
    try:
        method = getattr(value, name)
        found = method(**arguments) if callable(method) else None
        if isinstance(found, tuple) and len(found) == 2:
            found = found[0]
        return found
    except NotImplementedError:
        return None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  # only this form is lost
        complain("%s of %s failed: %s" % (name, name_of(type(value)), named(error)))
        return None
