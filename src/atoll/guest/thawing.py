"""Bringing back the variables that a file holds, in the context itself."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO, Dict, List, Set

from . import situation
from .buffers import BufferReader
from .frozenfile import Index, Part, Span
from .pickling import Toolbox, reason


class Thawing:
    """`found` and `lost` tell, after `run`, what is back and what is not. An interrupt gives up one variable."""

    def __init__(self, namespace: Dict[str, Any], file: BinaryIO, index: Index) -> None:
        self._namespace = namespace
        self._file = file
        self._index = index
        self._tools = Toolbox(namespace)
        self._buffers = BufferReader(file, index.buffers)
        self.found: Set[str] = set()
        self.lost: Dict[str, str] = {}

    def run(self) -> None:
        self.lost.update(situation.restore(self._index.situation))
        parts = sorted(self._index.parts, key=lambda part: not part.has_code)
        # One that needs another when it is made may come too early the first time.
        for part in [part for part in parts if not self._restore(part)]:
            if not self._restore(part):
                self._restore_apart(part)
        self._put_in_order()

    def _restore(self, part: Part) -> bool:
        if part.has_code and self._index.python != list(sys.version_info[:2]):
            self._give_up(part.names, "it holds code for Python %d.%d" % tuple(self._index.python[:2]))
            return True
        try:
            value = self._load(part.span)
        except BaseException as error:  # noqa: BLE001  # one bad value loses only itself
            self._give_up(part.names, reason(error))
            return isinstance(error, KeyboardInterrupt)
        self._accept(value if len(part.names) > 1 else {part.names[0]: value})
        return True

    def _restore_apart(self, part: Part) -> None:
        """Each by itself; then once more together, if all that one of them was missing were the others."""
        self._restore_alone(part)
        if not self._restore(part):
            self._restore_alone(part)

    def _restore_alone(self, part: Part) -> None:
        for name, span in part.alone.items():
            try:
                self._accept({name: self._load(span)})
            except BaseException as error:  # noqa: BLE001  # same
                self._give_up([name], reason(error))

    def _load(self, span: Span) -> Any:
        buffers = self._buffers.get(span.buffers)
        self._file.seek(span.at)
        return self._tools.unpickler(self._file, buffers).load()

    def _accept(self, values: Dict[str, Any]) -> None:
        self._namespace.update(values)
        for name in values:
            self.found.add(name)
            self.lost.pop(name, None)

    def _give_up(self, names: List[str], why: str) -> None:
        for name in names:
            self.lost[name] = why

    def _put_in_order(self) -> None:
        for name in self._index.names:
            if name in self.found and name in self._namespace:
                self._namespace[name] = self._namespace.pop(name)
