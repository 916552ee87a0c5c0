"""What goes on in a context beside its variables and is not brought back with them: it is named."""

from __future__ import annotations

import _thread
import sys
from typing import Any, Dict, List, Optional

_NAMED = 10
_NAME = 80
_SHARED = 3


def beside_variables(events: Any) -> Dict[str, str]:
    """By what is lost, the reasons; `events` is the loop of cells that await something, if there is one.

    The names have a space, which no variable's has.
    """
    lost: Dict[str, str] = {}
    threads = _threads()
    if threads:
        lost["running threads"] = "threads cannot be kept (%s)" % listed(threads)
    tasks = _tasks(events)
    if tasks:
        lost["asyncio tasks"] = "tasks that have not ended cannot be kept (%s)" % listed(tasks)
    return lost


def listed(names: List[str]) -> str:
    """How many there are, and the first of them."""
    shown = [name[:_NAME] for name in names[:_NAMED]]
    more = " and %d more" % (len(names) - _NAMED) if len(names) > _NAMED else ""
    return "%d: %s%s" % (len(names), ", ".join(shown), more)


def shared_mappings() -> Optional[int]:
    """How many parts of this process's memory others may see, and change; None where nobody tells."""
    try:
        with open("/proc/self/maps", "rb") as file:
            return sum(line.split(b" ", 2)[1][_SHARED:] == b"s" for line in file)
    except OSError:
        return None


def _threads() -> List[str]:
    """Those that run Python; libraries have others for their own purposes, and start them when they need them."""
    if not hasattr(sys, "_current_frames"):
        return []
    others = sorted(set(sys._current_frames()) - {_thread.get_ident()})  # noqa: SLF001  # there is no other way
    # The module may be one that a cell has put there.
    known = getattr(sys.modules.get("threading"), "_active", None)
    known = known if isinstance(known, dict) else {}
    return [str(getattr(known.get(ident), "_name", "one without a name")) for ident in others]


def _tasks(events: Any) -> List[str]:
    asyncio = sys.modules.get("asyncio")
    if events is None or asyncio is None:
        return []
    try:
        return sorted(
            str(getattr(task.get_coro(), "__qualname__", None) or task.get_name()) for task in asyncio.all_tasks(events)
        )
    except Exception:  # noqa: BLE001  # a loop, or a module, that a cell has brought
        return ["some that cannot be counted"]
