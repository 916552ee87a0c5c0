"""No wall at all: the real guest in a directory of its own, for tests and documentation.

What runs in it has all the rights of who made it. Nothing is enforced but the lifetime.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ..engine.copied import copy_source
from ..engine.launch import cloudpickle_directory
from ..engine.steward.history import CopiedHistory
from ..engine.steward.lines import guest_command, package_directory
from ..engine.steward.processes import ProcessWall
from ..engine.steward.wall import FILES
from ..types import Capability, Enforcement, Handle, Layer, Resources, Spec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NO_LIMITS: dict[str, Enforcement] = dict.fromkeys(Resources._fields, "none")


class FakeWall(ProcessWall):
    def command(self, control: int) -> Sequence[str]:
        self.facts = {"limits": _NO_LIMITS, "walls": []}
        return guest_command(
            self.job["python"], package_directory(), ("--control-fd", str(control)), self.job["config"]
        )


class FakeDriver(CopiedHistory):
    name = "fake"
    summary = "no wall: commands run on this machine with your rights; for tests and documentation only"
    capabilities = frozenset(
        {
            Capability.COMMANDS,
            Capability.CODE,
            Capability.PTY,
            Capability.WATCH,
            Capability.NETWORK_HOST,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
            Capability.SNAPSHOT,
            Capability.FORK,
        }
    )
    wall = "atoll.drivers.fake:FakeWall"

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        root = f"{box}/{FILES}"
        if resume is None:
            _furnish(root, spec)
        config = {
            "workdir": spec.workdir,
            "root": root,
            "home": root + spec.workdir,
            "env": {"PATH": _PATH, "LANG": "C.UTF-8", "TMPDIR": os.path.join(root, "tmp"), **spec.env},
            "python": sys.executable,
            "state": f"{root}/.state",
            "cloudpickle": cloudpickle_directory(),
        }
        return {"python": sys.executable, "config": config}

    async def health(self) -> list[Layer]:
        return [
            Layer("guest", ready=True, detail=f"runs with {sys.executable}"),
            Layer("wall", ready=False, detail="none, on purpose", required=False),
        ]


def _furnish(root: str, spec: Spec) -> None:
    """The directory of a new sandbox, with a copy of the source in its workspace."""
    workspace = root + spec.workdir
    os.makedirs(os.path.join(root, "tmp"), mode=0o700)
    copy_source(None if spec.snapshot is not None else spec.source, workspace)
