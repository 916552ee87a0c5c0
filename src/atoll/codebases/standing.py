"""Sandboxes that stewards keep, over codebases: each stands on a version, which is kept as long as somebody does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ..driver import Register
from ..engine.steward.client import StewardDriver
from ..types import Handle, Spec


class Standing(StewardDriver):
    """A `StewardDriver` that may take `Spec.codebase`: its wall finds the tree of the version as `source`."""

    async def _make(
        self,
        spec: Spec,
        register: Register | None,
        resume: Handle | None = None,
        begin: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> Handle:
        """With the version of a codebase that it stands on kept for it, if it stands on one."""
        if spec.codebase is None:
            return await super()._make(spec, register, resume, begin, more)
        from . import uses

        known = resume.data.get("codebase") if resume is not None else (begin or {}).get("codebase")
        with uses.used(spec.codebase, known) as version:
            placed = spec._replace(source=version.tree)
            register = register and pinning(register)
            return await super()._make(placed, register, resume, begin, {**more, "codebase": version.data()})

    async def destroy(self, handle: Handle) -> None:
        await super().destroy(handle)
        if handle.data.get("codebase"):
            from . import uses

            uses.unpin(handle.data, handle.id)


def pinning(register: Register) -> Register:
    """Whoever is written down has its version of a codebase kept, until it is destroyed."""

    def pin_and_register(handle: Handle) -> None:
        if not handle.data.get("codebase"):
            register(handle)
            return
        from . import uses

        uses.pin(handle.data, handle.id)
        try:
            register(handle)
        except BaseException:
            uses.unpin(handle.data, handle.id)
            raise

    return pin_and_register


@contextlib.contextmanager
def pinned(handle: Handle, manifest: dict[str, Any]) -> Iterator[None]:
    """Have the version of a codebase that a snapshot stands on kept for it, if it is made."""
    if not handle.data.get("codebase"):
        yield
        return
    from . import uses

    # Each try has a pin of its own: another one may have the name.
    pin = f"snapshot-{manifest['name']}.{os.urandom(4).hex()}"
    manifest |= {"codebase": handle.data["codebase"], "pin": pin}
    uses.pin(handle.data, pin)
    try:
        yield
    except BaseException:
        uses.unpin(handle.data, pin)
        raise
