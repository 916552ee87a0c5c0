"""Doing something to a module right after the cell's code has imported it; nothing is imported for it."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Optional, Sequence

Hook = Callable[[Any], None]


class AfterImport:
    """A finder that finds nothing by itself: it lets the others find, and has a hook called once the module has run.

    A hook that fails is told to `complain`, and does not break the import.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._hooks: Dict[str, Hook] = {}

    def install(self, hooks: Dict[str, Hook]) -> None:
        """Modules that are there already get their hook at once."""
        self._hooks = hooks
        for name in hooks:
            module = sys.modules.get(name)
            if module is not None:
                self._call(name, module)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> Any:
        if name not in self._hooks:
            return None
        spec = self._find(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._wrap(name, spec.loader)
        return spec

    def _find(self, name: str, path: Optional[Sequence[str]], target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def _wrap(self, name: str, loader: Any) -> None:
        """On the loader itself rather than around it: who asks a module for its loader gets the real one."""
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if module.__name__ == name:  # all modules of one archive share a loader
                self._call(name, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            self._complain("%s cannot be prepared for a sandbox: its loader takes no attributes" % name)

    def _call(self, name: str, module: Any) -> None:
        try:
            self._hooks[name](module)
        except Exception as error:  # noqa: BLE001  # another version of the library than this knows
            self._complain("%s cannot be prepared for a sandbox: %s: %s" % (name, type(error).__name__, error))
