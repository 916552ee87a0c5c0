"""How long a Sandbox lives, and what it is doing meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..client.lifetime import AsyncLifetime
from ..io import drive
from ..types import Checkpoint, Info, Metrics
from .docs import documented_by

if TYPE_CHECKING:
    from ..client.command import Seconds
    from ..sandbox import AsyncSandbox


@documented_by(AsyncLifetime)
class Lifetime:
    """Part of `Sandbox`."""

    _core: AsyncSandbox

    def refresh(self) -> Info:
        return drive(self._core.refresh())

    def metrics(self) -> Metrics:
        return drive(self._core.metrics())

    def set_lifetime(self, seconds: Seconds) -> None:
        drive(self._core.set_lifetime(seconds))

    def set_timeout(self, seconds: Seconds | None) -> None:
        drive(self._core.set_timeout(seconds))

    def pause(self) -> None:
        drive(self._core.pause())

    def resume(self) -> None:
        drive(self._core.resume())

    def checkpoint(self, *, wait: float = 30.0) -> Checkpoint:
        return drive(self._core.checkpoint(wait=wait))

    def stop(self, *, wait: float = 30.0) -> Checkpoint:
        return drive(self._core.stop(wait=wait))

    def destroy(self) -> None:
        drive(self._core.destroy())
