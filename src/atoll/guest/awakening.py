"""A context's own side of lasting state: it writes its variables when asked, and wakes up with those it had."""

from __future__ import annotations

import os
from typing import Any, Dict

from . import borrowed, freezing
from .arguments import Arguments
from .refusal import Refused, invalid
from .situation import Start, set_environment

_SHOWN = 20


class Memory:
    """Made before the first cell.

    Args:
        directory: where frozen state is kept.
        frozen: the file of this context, or empty when there is nothing to bring back.
    """

    def __init__(self, directory: str, frozen: str) -> None:
        self._directory = directory
        self._frozen = frozen
        self._start = Start.now()
        borrowed.remember_path()

    def dress(self, env: Dict[str, str]) -> None:
        """Begin with another environment, before the first cell."""
        set_environment(env)
        self._start = Start.now()

    @property
    def asleep(self) -> bool:
        """Whether `wake` has something to do."""
        return self._frozen != ""

    def wake(self, namespace: Dict[str, Any]) -> freezing.Report:
        """Bring everything back, once. What cannot be is in the report."""
        frozen, self._frozen = self._frozen, ""
        try:
            return freezing.thaw(namespace, frozen)
        except Refused as refusal:
            return freezing.Report(0, {"all variables": refusal.message})

    def freeze(self, namespace: Dict[str, Any], request: Dict[str, Any], flags: int) -> Dict[str, Any]:
        """Write the variables to the file that the request names. Raises Refused."""
        arguments = Arguments(request)
        name = arguments.text("file")
        if name != os.path.basename(name) or not name.strip("."):
            raise invalid("%.100r is no name for a file of a checkpoint." % name)
        path = os.path.join(self._directory, name)
        seconds = arguments.seconds("seconds")
        durable = arguments.flag("durable", default=True)
        return freezing.freeze(namespace, path, self._start, flags=flags, seconds=seconds, durable=durable).wire()


def notice(lost: Dict[str, str]) -> str:
    """What the next cell's stderr says about variables that are not back."""
    if not lost:
        return ""
    lines = ["%s: %s" % (name, why) for name, why in list(lost.items())[:_SHOWN]]
    if len(lost) > _SHOWN:
        lines.append("and %d more" % (len(lost) - _SHOWN))
    return "atoll could not bring back:\n%s\n" % "\n".join("  " + line for line in lines)
