"""Modules that a warm process imports ahead, for walls whose guests are forked from it."""

from __future__ import annotations

import contextlib
import importlib


def preload(names: str) -> None:
    """Import some, as far as they are there; a `StewardDriver.warmth` with the names, separated by spaces.

    What packages want to have done at the start of a Python is done, too; only now, when ours are imported.
    """
    import site
    import sys

    places = list(sys.path)
    site.main()
    sys.path += [place for place in places if place not in sys.path]
    for name in names.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
