"""Event loops where there are no sockets: nothing can come from outside, so that a loop only waits for time."""

from __future__ import annotations

import sys
import time
from typing import Any, List

from .afterimport import AfterImport


def install() -> None:
    """Whenever `asyncio` is imported, have its loops work here."""
    AfterImport(_complain).install({"asyncio.selector_events": _without_pipe, "selectors": _only_time})


def _complain(message: str) -> None:
    sys.stderr.write(message + "\n")


def _without_pipe(module: Any) -> None:
    """A loop wakes itself up through a pair of sockets when another thread wants something; here is no other thread."""
    loop = module.BaseSelectorEventLoop
    for name in ("_make_self_pipe", "_close_self_pipe", "_write_to_self"):
        setattr(loop, name, _nothing)


def _only_time(module: Any) -> None:
    class TimeSelector(module.BaseSelector):  # type: ignore[misc]
        """A selector with nothing to select from."""

        def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
            raise OSError(58, "There are no sockets in WebAssembly, and files are always ready")

        def unregister(self, fileobj: Any) -> Any:
            raise KeyError(fileobj)

        def select(self, timeout: Any = None) -> List[Any]:
            time.sleep(3600.0 if timeout is None else max(0.0, timeout))
            return []

        def close(self) -> None:
            pass

        def get_map(self) -> Any:
            return {}

    module.DefaultSelector = TimeSelector


def _nothing(*_arguments: Any) -> None:
    pass
