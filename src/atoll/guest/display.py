"""`display()` and what a cell shows without it: the value of its last expression, and its open figures."""

from __future__ import annotations

import binascii
import builtins
import os
from typing import Any, Callable, Collection, Dict, Optional

from . import forms, libraries, mime
from .afterimport import AfterImport
from .complaints import name_of, named, to_stderr
from .figures import Figures, dressed

Send = Callable[[Dict[str, Any], bool], None]

_PLAIN = frozenset(
    (int, str, float, list, dict, tuple, bool, set, frozenset, bytes, bytearray, complex, range, type, type(None))
)
"""Types whose values have a text only. Their subclasses may have more."""


class Displays:
    """Shows the values of one context.

    Args:
        send: sends a MIME bundle, and whether it is the main result: the value of the last expression.

    Attributes:
        truncated: whether a text was cut. Who asks sets it back.
    """

    def __init__(self, send: Send) -> None:
        self.truncated = False
        self._send = send
        self._figures = Figures(self._show_side)

    def install(self) -> None:
        """Once, in a new context: `display` becomes a builtin, and libraries are prepared when they are imported."""

        def display(*values: Any, **options: Any) -> Optional[DisplayHandle]:
            """Show values, as IPython's display does.

            Args:
                values: what to show.
                include, exclude: MIME types.
                raw: the values are MIME bundles.
                display_id: a text, or True for a new one; gives a handle whose `update` shows the new value.
            """
            return self.display(*values, **options)

        builtins.display = dressed(display, "builtins", "display")  # type: ignore[attr-defined]
        hooks = self._figures.install()
        hooks.update(libraries.hooks(self.display))
        AfterImport(to_stderr).install(hooks)

    def show_main(self, value: Any) -> None:
        """Show the value of the last expression. Raises only what the value's own code does to end the cell."""
        self._show(value, main=True)

    def end_of_cell(self) -> None:
        """Show the figures that are open, and close them."""
        self._figures.show_open()

    def display(
        self,
        *values: Any,
        include: Optional[Collection[str]] = None,
        exclude: Optional[Collection[str]] = None,
        raw: bool = False,
        display_id: Any = None,
        **_options: Any,
    ) -> Optional[DisplayHandle]:
        """As IPython's. Metadata are not kept, and nothing that was shown is taken back: an update shows once more.

        Raises:
            TypeError: a value is no dict, though `raw` says so.
        """
        for value in values:
            if raw:
                self._show_raw(value)
            else:
                self._show(value, main=False, include=include, exclude=exclude)
        if display_id is None or display_id is False:
            return None
        return DisplayHandle(self.display, None if display_id is True else display_id)

    def _show_side(self, value: Any) -> None:
        self._show(value, main=False)

    def _show_raw(self, bundle: Any) -> None:
        if not isinstance(bundle, dict):
            raise TypeError("display(raw=True) takes dicts from MIME type to data, not %s" % type(bundle).__name__)
        self._send_bundle(mime.fit_bundle(bundle, to_stderr), main=False)

    def _show(
        self,
        value: Any,
        *,
        main: bool,
        include: Optional[Collection[str]] = None,
        exclude: Optional[Collection[str]] = None,
    ) -> None:
        if include is exclude is None and (type(value) in _PLAIN or not forms.offers_any(value)):
            self._send({mime.TEXT: self._bounded(mime.text_of(value))}, main)
            return
        if self._shows_itself(value):
            return
        bundle: Dict[str, Any] = {}
        offered = self._forms(value, include, exclude)
        if mime.is_wanted(mime.TEXT, include, exclude):
            bundle[mime.TEXT] = offered.pop(mime.TEXT, None) or mime.text_of(value)
        bundle.update(offered)
        self._send_bundle(bundle, main=main)

    def _forms(self, value: Any, include: Any, exclude: Any) -> Dict[str, Any]:
        try:
            return libraries.forms_of(value, to_stderr, include, exclude)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # an object may be broken anywhere
            to_stderr("%s cannot be shown: %s" % (name_of(type(value)), named(error)))
            return {}

    def _shows_itself(self, value: Any) -> bool:
        try:
            if not libraries.takes_over(value):
                return False
            value._ipython_display_()
        except (KeyboardInterrupt, SystemExit):
            raise
        except NotImplementedError:
            return False
        except BaseException as error:  # noqa: BLE001  # its other forms can still be shown
            to_stderr("_ipython_display_ of %s failed: %s" % (name_of(type(value)), named(error)))
            return False
        return True

    def _send_bundle(self, bundle: Dict[str, Any], *, main: bool) -> None:
        if mime.TEXT in bundle:
            bundle[mime.TEXT] = self._bounded(bundle[mime.TEXT])
        if bundle:
            self._send(bundle, main)

    def _bounded(self, text: str) -> str:
        cut = mime.bounded(text)
        if len(cut) < len(text):
            self.truncated = True
        return cut


class DisplayHandle:
    """What `display(..., display_id=...)` gives."""

    def __init__(self, display: Callable[..., Any], display_id: Optional[str]) -> None:
        self._display = display
        self.display_id = display_id or binascii.hexlify(os.urandom(16)).decode("ascii")

    def display(self, value: Any, **options: Any) -> None:
        self._display(value, **options)

    def update(self, value: Any, **options: Any) -> None:
        """Show the new value. The old one stays where it was."""
        self._display(value, **options)

    def __repr__(self) -> str:
        return "<DisplayHandle display_id=%s>" % self.display_id
