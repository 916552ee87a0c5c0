"""The guest and the views of the jail behind bubblewrap: a wall that others have built and looked at, too."""

from __future__ import annotations

from typing import Any

from ..engine import orders
from ..engine.launch import cloudpickle_directory
from ..engine.layout import Layout
from ..engine.steward.client import StewardDriver
from ..errors import Unsupported
from ..home import state_dir
from ..types import Capability, Handle, Layer, Spec
from . import bwrap_binary


class BwrapDriver(StewardDriver):
    name = "bwrap"
    summary = "bubblewrap on this machine: namespaces, seccomp and Landlock around the same guest as the jail's"
    isolation = "container"
    capabilities = frozenset(
        {
            Capability.COMMANDS,
            Capability.CODE,
            Capability.PTY,
            Capability.WATCH,
            Capability.ISOLATION,
            Capability.NETWORK_NONE,
            Capability.NETWORK_HOST,
            Capability.LIMITS,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
        }
    )
    wall = "atoll.drivers.bwrap_wall:BwrapWall"
    warm = True

    def places(self, handle: Handle | None = None) -> Layout:
        home = None if handle is None else handle.data.get("home")
        return Layout(home if isinstance(home, str) else state_dir(), self.name)

    def place(self, name: str) -> str:
        return self.places().box(name)

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        _refuse(spec)
        binary = bwrap_binary.choose()
        places = self.places(resume)
        places.make()
        return {
            "order": orders.job_for(spec, resume, places.home),
            "stands": {},
            "home": places.home,
            "wall": places.wall,
            "binary": list(binary),
            "cloudpickle": cloudpickle_directory(),
        }

    def sweep(self, handle: Handle, box: str) -> None:
        from ..engine.steward import bounds

        bounds.sweep(handle.id)

    async def health(self) -> list[Layer]:
        from ..engine import probe

        return await self.io.in_thread(lambda: [*probe.layers(), *bwrap_binary.layers()])


def _refuse(spec: Spec) -> None:
    """What is asked for and cannot be given."""
    for wish, asked in (
        ("image=", spec.image is not None),
        ("audit=True", spec.audit),
        ('network="all"', spec.network == "all"),
        ("packages=", bool(spec.packages)),
    ):
        if asked:
            raise Unsupported(f"The bwrap driver cannot honour {wish}.", hint='Leave it out, or use driver="jail".')
