"""What a context's code finds around it, beside its variables: directory, environment, places to import from."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, List, NamedTuple


def set_environment(env: Dict[str, str]) -> None:
    """Have these variables, and no others."""
    os.environ.clear()
    os.environ.update(env)
    if hasattr(time, "tzset"):  # WebAssembly may have none
        time.tzset()


class Start(NamedTuple):
    """How things stood before the first cell."""

    env: Dict[str, str]
    path: List[str]

    @classmethod
    def now(cls) -> Start:
        return cls(dict(os.environ), list(sys.path))


def describe(start: Start) -> Dict[str, Any]:
    """The directory, and what cells have changed since the start, as JSON."""
    env = dict(os.environ)
    return {
        "cwd": _directory(),
        "set": {name: value for name, value in env.items() if start.env.get(name) != value},
        "unset": [name for name in start.env if name not in env],
        "before": _texts(sys.path[: _old(start)]),
        "after": [place for place in _texts(sys.path[_old(start) :]) if place not in start.path],
    }


def _old(start: Start) -> int:
    """Where on the path the first place is that was there at the start."""
    return next((at for at, place in enumerate(sys.path) if place in start.path), len(sys.path))


def _texts(places: List[Any]) -> List[str]:
    """Cells put paths of other types there too, which count for nothing."""
    return [place for place in places if isinstance(place, str)]


def _directory() -> Any:
    try:
        return os.getcwd()
    except OSError:
        return None


def restore(described: Dict[str, Any]) -> Dict[str, str]:
    """Bring it back; gives what could not be, with the reasons."""
    lost: Dict[str, str] = {}
    os.environ.update(described["set"])
    for name in described["unset"]:
        os.environ.pop(name, None)
    sys.path[:0] = [place for place in described["before"] if place not in sys.path]
    sys.path.extend(place for place in described["after"] if place not in sys.path)
    try:
        if described["cwd"] is not None:
            os.chdir(described["cwd"])
    except OSError as error:
        lost["the working directory"] = "%s: %s" % (described["cwd"], error.strerror)
    return lost
