"""What was refused to a Sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..client.auditing import AsyncAudited, Denials, Source
from ..io import drive
from .docs import documented_by

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox


@documented_by(AsyncAudited)
class Audited:
    """Part of `Sandbox`."""

    _core: AsyncSandbox

    def audit(self, *, since: float | None = None, source: Source | None = None) -> Denials:
        return drive(self._core.audit(since=since, source=source))
