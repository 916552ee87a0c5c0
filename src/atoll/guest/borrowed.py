"""cloudpickle, lent to contexts by whoever starts the guest: in memory, since no file of the host is to be seen inside.

It is loaded under a name of our own and nowhere on `sys.path`: what a sandbox installs cannot take its place,
and no code inside meets it by accident.
"""

from __future__ import annotations

import builtins
import importlib
import marshal
import os
import sys
import types
from typing import Any, List, Optional

NAME = "_atoll_cloudpickle"

_lent: List[bytes] = []
_loaded: List[types.ModuleType] = []
_path: List[str] = []


def lend(path: str) -> None:
    """Read cloudpickle from the directory of its package, before the wall is closed. Without it, much is lost.

    Raises:
        OSError: it is not there.
        SyntaxError: it is for another Python.
    """
    with open(os.path.join(path, "cloudpickle.py"), "rb") as file:
        _lent[:] = [marshal.dumps(compile(file.read(), "<cloudpickle>", "exec", dont_inherit=True))]


def cloudpickle() -> Optional[types.ModuleType]:
    """The module, loaded when it is first asked for; None where it was not lent."""
    if not _loaded and _lent:
        module = types.ModuleType(NAME)
        # As in any module that is imported: restored functions get it as theirs.
        module.__dict__["__builtins__"] = builtins
        # Its classes are made by a standard library that looks their module up by its name.
        sys.modules[NAME] = module
        try:
            with StandardPath():
                exec(marshal.loads(_lent[0]), module.__dict__)  # noqa: S102, S302  # our own, read before the wall closed
        finally:
            del sys.modules[NAME]
        _loaded.append(module)
    return _loaded[0] if _loaded else None


def remember_path() -> None:
    """Note where a context finds things before its first cell: in an image the library is not where it was outside."""
    _path[:] = sys.path


def _library() -> str:
    for place in _path:
        if os.path.isabs(place) and os.path.isfile(os.path.join(place, "os.py")):
            return place
    return os.path.dirname(os.path.abspath(os.__file__))


def standard(name: str) -> Any:
    """A module of the standard library, also where a file of the workspace has its name."""
    with StandardPath():
        return importlib.import_module(name)


class StandardPath:
    """Inside, imports find the standard library only."""

    def __enter__(self) -> None:
        self._before = sys.path[:]
        library = _library()
        sys.path[:] = [library, os.path.join(library, "lib-dynload")]

    def __exit__(self, *_story: object) -> None:
        sys.path[:] = self._before
