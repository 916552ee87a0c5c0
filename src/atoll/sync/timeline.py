"""What a Sandbox does with its own past and with its twins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, overload

from ..client.timeline import AsyncTimeline
from ..io import drive
from ..types import Snapshot
from .docs import documented_by

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox


@documented_by(AsyncTimeline)
class Timeline:
    """Part of `Sandbox`."""

    _core: AsyncSandbox

    def snapshot(self, name: str | None = None, *, wait: float = 2.0, force: bool = False) -> Snapshot:
        return drive(self._core.snapshot(name, wait=wait, force=force))

    def rollback(self, name: str) -> None:
        drive(self._core.rollback(name))

    @overload
    def fork(
        self,
        n: None = None,
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: float | None = None,
        wait: float = 30.0,
        force: bool = False,
        live: bool = False,
    ) -> Self: ...
    @overload
    def fork(
        self,
        n: int,
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: float | None = None,
        wait: float = 30.0,
        force: bool = False,
        live: bool = False,
    ) -> list[Self]: ...
    def fork(
        self,
        n: int | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: float | None = None,
        wait: float = 30.0,
        force: bool = False,
        live: bool = False,
    ) -> Self | list[Self]:
        count = 1 if n is None else n
        cores = drive(self._core.fork(count, labels=labels, lifetime=lifetime, wait=wait, force=force, live=live))
        twins = [self._twin(core) for core in cores]
        return twins[0] if n is None else twins

    def _twin(self, core: Any) -> Self:
        return type(self)(core._record, core._tools)  # type: ignore[call-arg]  # noqa: SLF001 - of our own twin
