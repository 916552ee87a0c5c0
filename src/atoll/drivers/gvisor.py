"""gVisor: a kernel of its own for each sandbox, by `runsc`, with no daemon to install."""

from __future__ import annotations

import os
from typing import Any

from ..engine import disk, layout, orders, roottree, threshold
from ..engine.launch import cloudpickle_directory
from ..engine.limits import DEFAULT_DISK
from ..engine.steward.lines import guest_command
from ..engine.steward.wall import FILES
from ..errors import Unsupported
from ..home import state_dir
from ..packages.shown import Packaged
from ..policy.offers import narrowed
from ..types import Capability, Handle, Layer, Offers, Spec
from . import gvisor_runtime
from .gvisor_review import Reviewed
from .gvisor_source import VIEW

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class GVisorDriver(Reviewed, Packaged):
    name = "gvisor"
    summary = "a kernel of its own for each sandbox: gVisor's runsc on this machine"
    isolation = "kernel"
    capabilities = frozenset(
        {
            Capability.COMMANDS,
            Capability.CODE,
            Capability.PTY,
            Capability.WATCH,
            Capability.ISOLATION,
            Capability.NETWORK_NONE,
            Capability.NETWORK_ALL,
            Capability.LIMITS,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.PACKAGES,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
            Capability.PERMISSIONS,
            Capability.REVIEW,
            Capability.SNAPSHOT,
            Capability.FORK,
        }
    )
    wall = "atoll.drivers.gvisor_wall:GVisorWall"
    warm = True
    _offers: Offers | None = None

    async def offers(self) -> Offers:
        if self._offers is None:
            self._offers = _here(await super().offers())
        return self._offers

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        orders.check_workdir(spec.workdir)
        home = state_dir()
        # The tree of a codebase is atoll's own, and nobody else's.
        source = spec.source if spec.source is None or spec.codebase else orders.source_directory(spec.source, home)
        runtime = gvisor_runtime.cached(home)
        rootless = threshold.is_rootless()
        user = 0 if rootless else layout.USER
        covered = source is not None and not rootless and _can_cover(spec)
        root = roottree.with_busybox(home) if runtime.needs_busybox else roottree.build(home)
        limits = spec.resources
        command = guest_command(roottree.PYTHON, roottree.GUEST, ("--stream-fds", "0,1"), _config(spec), "begin.py")
        descent = (layout.USER, layout.GROUP, limits.pids, rootless, spec.network == "none")
        return {
            "runsc": runtime.path,
            "version": runtime.version,
            "platform": runtime.platform(),
            "reaches_files": runtime.reaches_files,
            "root": root,
            "rootless": rootless,
            "uid": user,
            "workdir": spec.workdir,
            "network": spec.network,
            # A snapshot of a copy is a copy.
            "source": source if covered or spec.snapshot is None else None,
            "covered": covered,
            "permissions": orders.rules(spec.permissions),
            "ignore": list(spec.ignore),
            "home": home,
            "places": _places(spec, box, covered=covered),
            "command": [*command, "--descend", ",".join(map(str, map(int, descent)))],
            "env": _environment(spec),
            "memory": limits.memory,
            "pids": limits.pids,
            "cpu": limits.cpu,
            "disk": limits.disk or DEFAULT_DISK,
            "kernel_disk": not rootless and disk.available(),
            "strict": spec.strict,
            "disks": f"{home}/{self.name}/disks",
        }

    def sweep(self, handle: Handle, box: str) -> None:
        from ..engine import network
        from ..engine.steward import bounds
        from . import gvisor_sweep

        bounds.sweep(os.path.basename(box))
        gvisor_sweep.end_strays(box)
        network.forget(os.path.basename(box), box)

    async def first_use(self, spec: Spec) -> str | None:
        if roottree.is_built(state_dir()):
            return None
        return "Making a root file system of this machine, once: seconds to a minute."

    async def health(self) -> list[Layer]:
        from . import gvisor_health

        return await self.io.in_thread(gvisor_health.layers)


def _environment(spec: Spec) -> dict[str, str]:
    """Of everything in the sandbox. It is not told on a command line, where all could read it."""
    made_with = f"{layout.PACKAGES}/bin:" if spec.packages else ""
    return {
        "PATH": f"{layout.HOME_INSIDE}/.local/bin:{made_with}{_PATH}",
        "HOME": layout.HOME_INSIDE,
        "USER": layout.USER_NAME,
        "LOGNAME": layout.USER_NAME,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        **spec.env,
    }


def _config(spec: Spec) -> dict[str, Any]:
    """Of the guest."""
    packages = bool(spec.packages)
    return {
        "workdir": spec.workdir,
        "home": layout.HOME_INSIDE,
        "image": True,
        "python": roottree.python(packages=packages),
        "python_path": roottree.python_path(packages=packages),
        "cloudpickle": roottree.CLOUDPICKLE if cloudpickle_directory() else "",
        "memory": spec.resources.memory,
    }


def _can_cover(spec: Spec) -> bool:
    """Whether the workspace is the source with a layer over it here, and not a copy.

    Raises:
        Unsupported: nothing else would do.
    """
    from ..engine import views

    if views.can_overlay(rootless=False):
        return True
    if spec.permissions is None and not spec.ignore and spec.codebase is None:
        return False
    raise Unsupported(
        "Path permissions and codebases need overlayfs, which this host does not let atoll mount.",
        hint=views.WITHOUT_RULES,
    )


def _places(spec: Spec, box: str, *, covered: bool) -> list[tuple[str, str, bool]]:
    targets = layout.targets(spec.workdir)
    found = [(f"{box}/{FILES}/{name}", target, True) for name, target in targets.items()]
    if covered:
        own = f"{box}/{FILES}/work"
        found = [(f"{box}/{VIEW}" if place == own else place, inside, shown) for place, inside, shown in found]
    if site := roottree.site_packages():
        found.append((site, roottree.SITE_PACKAGES, False))
    return found


def _here(offers: Offers) -> Offers:
    """What is offered to this user: it takes files to be read, and every operation asks."""
    offers = narrowed(
        offers,
        (Capability.LIVE_RULES,),
        "The rules of a sandbox behind gVisor cannot be changed while it runs: gVisor holds its files open.",
        "Give the rules to create(), take a snapshot and make a sandbox of it with other rules, or use the jail.",
    )
    if not threshold.is_rootless():
        return offers
    offers = narrowed(
        offers,
        (Capability.PERMISSIONS, Capability.REVIEW),
        "Path permissions and codebases behind gVisor need root.",
        'Run as root, use the jail, or say preset="full-access" (--preset full-access) to show all of a copy of '
        "the source.",
    )
    return narrowed(
        offers,
        (Capability.NETWORK_ALL,),
        'network="all" on gVisor needs root: gVisor sends past the rules that an ordinary user can make.',
        "Run as root, or use the jail, which closes what it must not reach for an ordinary user, too.",
    )
