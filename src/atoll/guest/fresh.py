"""Making an interpreter what code of a cell expects to find: as if it had just been started, by itself."""

from __future__ import annotations

import _frozen_importlib_external as _bootstrap
import _sitebuiltins
import builtins
import gc
import sys
from typing import Any, List, NoReturn

from .config import Config

_PACKAGE = __name__.partition(".")[0]


def set_interpreter(config: Config) -> None:
    """Nothing of the guest is seen from now on. What is not imported yet is out of reach for the guest, too."""
    sys.argv = [""]
    sys.path[:] = ["", *(config.python_path or sys.path)]
    sys.path_importer_cache.clear()
    _expect_packages(config)
    sys.executable = config.python
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for name in ("exit", "quit"):
        setattr(builtins, name, _Quitter(name, "Ctrl-D"))
    builtins.help = _sitebuiltins._Helper()  # noqa: SLF001  # as `site` does, which may not be loaded
    for name in _own_modules or find_own_modules():
        del sys.modules[name]  # a cell that imports it wants the one that its sandbox has, if any
    # What came from the guest is never garbage here; collecting would only copy its pages.
    gc.freeze()
    gc.enable()


def _expect_packages(config: Config) -> None:
    """Directories that an installer makes later: Python would remember for good that they are not there."""
    for path in config.python_path:
        if path.endswith("/site-packages"):
            finder = _bootstrap.FileFinder(path, *_bootstrap._get_supported_file_loaders())  # type: ignore[attr-defined]  # noqa: SLF001
            sys.path_importer_cache[path] = finder


class _Quitter(_sitebuiltins.Quitter):
    """Ends the cell. The usual one closes sys.stdin as well, which the next cell would miss."""

    def __call__(self, code: Any = None) -> NoReturn:
        raise SystemExit(code)


_own_modules: List[str] = []


def find_own_modules() -> List[str]:
    """The guest's own modules. Found out once, before anything is forked, that is not done again in each fork."""
    _own_modules[:] = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return _own_modules


def reseed() -> None:
    """All forks of one guest would draw the same numbers. `random` reseeds itself on fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
