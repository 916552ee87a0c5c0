"""Packages on walls whose root file system is made of this machine: see `engine.roottree`.

Their Python is at another place than the host's, and there is less around it: so they have environments of their own,
which are installed in a sandbox of the same wall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..driver import Register
from ..engine import roottree
from ..engine.steward.client import StewardDriver
from ..home import state_dir
from ..types import Handle, Spec

ENVIRONMENT, SHOWN = "environment", "shown"


class Packaged(StewardDriver):
    """A `StewardDriver` that may declare PACKAGES.

    Its wall finds in the job what it has to show, read-only, where `engine.steward.lent` says.
    """

    python = roottree.PYTHON

    async def _make(
        self,
        spec: Spec,
        register: Register | None,
        resume: Handle | None = None,
        begin: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> Handle:
        """With the environment of its packages kept from being removed meanwhile; then its wall keeps it."""
        if not spec.packages:
            return await super()._make(spec, register, resume, begin, more)
        from . import cache, choosing

        known = begin if resume is None else resume.data
        with cache.in_use(choosing.environment(spec, known, state_dir(), self.python)) as tree:
            return await super()._make(spec, register, resume, begin, {**more, ENVIRONMENT: tree})

    async def workshop(self, spec: Spec, shown: Sequence[str]) -> Handle:
        return await self._make(spec, None, more={SHOWN: list(shown)})
