"""A context's own side of lasting state: it writes its variables when asked, and wakes up with those it had."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple, Optional

from . import borrowed, freezing, running
from .arguments import Arguments
from .refusal import Refused, invalid
from .situation import Start, set_environment

_SHOWN = 20


class _Kept(NamedTuple):
    """The last file, as it was then, and what was said of it."""

    file: str
    size: int
    modified: int
    durable: bool
    report: Dict[str, Any]


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
        self._kept: Optional[_Kept] = None
        self._shared_at_start = running.shared_mappings()
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

    def touched(self) -> None:
        """Something was done that may have changed a variable."""
        self._kept = None

    def freeze(
        self, namespace: Dict[str, Any], request: Dict[str, Any], flags: int, beside: Dict[str, str]
    ) -> Dict[str, Any]:
        """Write the variables to the file that the request names; `beside` is what is lost beside them.

        Where nothing can have changed since the last time, nothing is written: `file` is the one that counts.

        Raises:
            Refused: as `freezing.freeze` says.
        """
        arguments = Arguments(request)
        name = arguments.text("file")
        if name != os.path.basename(name) or not name.strip("."):
            raise invalid("%.100r is no name for a file of a checkpoint." % name)
        durable = arguments.flag("durable", default=True)
        if self._kept is not None and not beside and self._still_counts(self._kept, durable):
            return self._kept.report
        path = os.path.join(self._directory, name)
        report = freezing.freeze(
            namespace,
            path,
            self._start,
            flags=flags,
            seconds=arguments.seconds("seconds"),
            durable=durable,
            partial=arguments.flag("partial"),
            beside=beside,
        )
        said = {**report.wire(), "file": name}
        stat = os.stat(path)
        self._kept = _Kept(name, stat.st_size, stat.st_mtime_ns, durable, said)
        return said

    def _still_counts(self, kept: _Kept, durable: bool) -> bool:
        """Whether the file is as it was, and nobody but a cell could have changed a variable."""
        if durable and not kept.durable:
            return False
        if self._shared_at_start is None or running.shared_mappings() != self._shared_at_start:
            return False
        try:
            stat = os.stat(os.path.join(self._directory, kept.file))
        except OSError:
            return False
        return (stat.st_size, stat.st_mtime_ns) == (kept.size, kept.modified)


def notice(lost: Dict[str, str]) -> str:
    """What the next cell's stderr says about variables that are not back."""
    if not lost:
        return ""
    lines = ["%s: %s" % (name, why) for name, why in list(lost.items())[:_SHOWN]]
    if len(lost) > _SHOWN:
        lines.append("and %d more" % (len(lost) - _SHOWN))
    return "atoll could not bring back:\n%s\n" % "\n".join("  " + line for line in lines)
