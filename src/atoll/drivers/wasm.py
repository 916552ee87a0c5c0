"""Python on WebAssembly: no network, no processes, and no files but those of the sandbox.

The code inside is compiled for a machine that does not exist, and has no way to name anything outside of its own
memory but the functions that it is given. It needs no right of the host's, so that it works as any user.
"""

from __future__ import annotations

import os
from typing import Any

from ..engine.copied import copy_source
from ..engine.limits import DEFAULT_DISK
from ..engine.steward.history import CopiedHistory
from ..engine.steward.wall import FILES
from ..types import Capability, Handle, Layer, Spec
from . import wasm_compiler

_ROOT, _STATE = "root", "state"
_PYTHON = "/usr/local/bin/python"
_TMP = "/tmp"  # noqa: S108 - the sandbox's own


class WasmDriver(CopiedHistory):
    name = "wasm"
    summary = "WebAssembly: Python with no network, no processes and no files but its own; needs no rights"
    isolation = "runtime"
    capabilities = frozenset(
        {
            Capability.CODE,
            Capability.WATCH,
            Capability.ISOLATION,
            Capability.NETWORK_NONE,
            Capability.LIMITS,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
            Capability.SNAPSHOT,
            Capability.FORK,
        }
    )
    wall = "atoll.drivers.wasm_wall:WasmWall"
    warm = True

    def warmth(self) -> tuple[str, str]:
        return "atoll.drivers.wasm_stock:prepare", wasm_compiler.serving().dumps()

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        wasm_compiler.make_ready(careful=self.careful or spec.strict)
        files = f"{box}/{FILES}"
        if resume is None:
            _furnish(files, spec)
        # The workspace is on the host's disk, which hostile code shall not fill. It is only looked at now and then,
        # which `strict` does not accept.
        disk = spec.resources.disk or (None if spec.strict else DEFAULT_DISK)
        limits = {**spec.resources._asdict(), "disk": disk, "strict": spec.strict, "sparse": True}
        return {"config": _config(spec, files), "limits": limits}

    def sweep(self, handle: Handle, box: str) -> None:
        from ..engine.steward import bounds

        bounds.sweep(os.path.basename(box))

    async def first_use(self, spec: Spec) -> str | None:
        return wasm_compiler.first_use(careful=self.careful or spec.strict)

    async def health(self) -> list[Layer]:
        from . import wasm_health

        return wasm_health.layers()


def _config(spec: Spec, files: str) -> dict[str, Any]:
    """The guest is outside: what it writes for itself lies where no link that the code makes leads."""
    return {
        "workdir": spec.workdir,
        "root": f"{files}/{_ROOT}",
        "root_inside": "/",
        "home": spec.workdir,
        "env": {"LANG": "C.UTF-8", "TMPDIR": _TMP, **spec.env},
        "python": _PYTHON,
        "state": f"{files}/{_STATE}",
    }


def _furnish(files: str, spec: Spec) -> None:
    """The directories of a new sandbox, with a copy of the source in its workspace."""
    root = f"{files}/{_ROOT}"
    workspace = root + spec.workdir
    os.mkdir(f"{files}/{_STATE}", 0o700)
    os.makedirs(os.path.join(root, "tmp"), mode=0o700)
    copy_source(spec.source, workspace)
