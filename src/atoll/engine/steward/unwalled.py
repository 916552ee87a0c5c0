"""What drivers without a wall share: a guest in a directory of its own, with limits and a clean environment.

What runs in it has all the rights of who made it, on this machine's files, processes and network.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

from ...types import Capability, Handle, Layer, Spec
from ..copied import copy_source
from .client import StewardDriver
from .wall import FILES

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MARK = "ATOLL_SANDBOX"


class UnwalledDriver(StewardDriver):
    """A driver of guests that are forks of their stewards."""

    capabilities = frozenset(
        {
            Capability.COMMANDS,
            Capability.CODE,
            Capability.PTY,
            Capability.WATCH,
            Capability.NETWORK_HOST,
            Capability.LIMITS,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.PAUSE,
            Capability.METRICS,
        }
    )
    wall = "atoll.engine.steward.forked:ForkedWall"
    warm = True

    def configure(self, spec: Spec, config: dict[str, Any]) -> dict[str, Any]:
        """The guest's configuration as this driver wants it. May block. Raises as `prepare` does."""
        return config

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        root = f"{box}/{FILES}"
        config = self.configure(spec, _config(spec, box, root))
        if resume is None:
            _furnish(root, spec)
        return {"config": config, "limits": {**spec.resources._asdict(), "strict": spec.strict}}

    def sweep(self, handle: Handle, box: str) -> None:
        from . import bounds

        bounds.sweep(os.path.basename(box))
        _kill_marked(os.path.basename(box))

    async def health(self) -> list[Layer]:
        from .. import cgroups
        from ..probe import groups_fix

        held = cgroups.find()
        return [
            Layer("guest", ready=True, detail=f"a fork of {sys.executable}"),
            Layer(
                "limits",
                ready=held is not None,
                detail="held by control groups" if held else "looked after by polling, for want of a control group",
                fix=None if held else groups_fix(),
                required=False,
            ),
            Layer("wall", ready=False, detail="none, on purpose: for code that you trust", required=False),
        ]


def _config(spec: Spec, box: str, root: str) -> dict[str, Any]:
    """Of the guest: this Python with all that it can import, and nothing of this process's environment."""
    env = {
        "PATH": f"{os.path.dirname(sys.executable)}:{_PATH}",
        "LANG": "C.UTF-8",
        "TMPDIR": os.path.join(root, "tmp"),
        _MARK: os.path.basename(box),
        **spec.env,
    }
    return {
        "workdir": spec.workdir,
        "root": root,
        "home": root + spec.workdir,
        "env": env,
        "python": sys.executable,
        "python_path": [place for place in sys.path if os.path.isabs(place)],
        "state": f"{root}/.state",
    }


def _furnish(root: str, spec: Spec) -> None:
    """The directory of a new sandbox, with a copy of the source in its workspace."""
    workspace = root + spec.workdir
    os.makedirs(os.path.join(root, "tmp"), mode=0o700)
    copy_source(spec.source, workspace)


def _kill_marked(name: str) -> None:
    """Kill what a guest and a steward have left that were killed both at once. Nothing holds it but its environment."""
    wanted = f"{_MARK}={name}".encode()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/environ", "rb") as file:
                    marked = wanted in file.read().split(b"\0")
                if marked:
                    os.kill(int(entry), signal.SIGKILL)
