"""What this machine offers to gVisor, layer by layer. Starts nothing but `runsc --version`."""

from __future__ import annotations

import os
import sys

from ..errors import WallUnavailable
from ..types import Layer
from . import gvisor_runtime
from .gvisor_runtime import Runtime

_SHARED = ("namespaces", "control groups", "disk limit in the kernel")
_OF_ROOT = (*_SHARED[1:], "network=all")
_BUSYBOX = ("/usr/bin/busybox", "/bin/busybox")


def layers() -> list[Layer]:
    """Each of them, and how to fix one that is missing."""
    if not sys.platform.startswith("linux"):
        return [Layer("Linux", ready=False, detail=sys.platform, fix="Use a hosted driver on this system.")]
    from ..engine import probe, threshold

    found = _runsc()
    wanted = _SHARED if threshold.is_rootless() else _OF_ROOT
    return [*found, *(layer for layer in probe.layers() if layer.name in wanted)]


def _runsc() -> list[Layer]:
    try:
        runtime = gvisor_runtime.find()
        platform = runtime.platform()
    except WallUnavailable as error:
        return [Layer("runsc", ready=False, detail=str(error), fix=error.hint)]
    slow = "; slow: a newer runsc has systrap" if platform == "ptrace" and "systrap" not in runtime.platforms else ""
    return [
        Layer("runsc", ready=True, detail=f"{runtime.path}, gVisor {runtime.version}"),
        Layer("platform", ready=True, detail=f"{platform}{slow}"),
        *_tools(runtime),
    ]


def _tools(runtime: Runtime) -> list[Layer]:
    if not runtime.needs_busybox:
        return []
    has = any(os.access(path, os.X_OK) for path in _BUSYBOX)
    said = "those of busybox, since GNU's fail in this gVisor" if has else "GNU's fail in this gVisor"
    fix = None if has else "apt-get install busybox-static"
    return [Layer("ls and stat", ready=has, detail=said, fix=fix, required=False)]
