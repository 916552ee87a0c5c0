"""What this host offers to those who make sandboxes, found out once before they do."""

from __future__ import annotations

import os
import sys

from ..errors import Unsupported
from . import cgroups, disk, jail, kernel, landlock, rootfs, seccomp, views
from .layout import Layout
from .settings import Settings


def resolver() -> str:
    """The name servers that a sandbox with a network may ask: the host's, unless they are loopback."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    kept = [line for line in lines if not line.startswith("nameserver 127.") and not line.startswith("#")]
    return "\n".join(kept) + "\n" if kept else ""


def hold(environment: str) -> int:
    """Keep an environment of packages from being removed, for as long as the descriptor is open anywhere; see
    `packages.cache`."""
    import fcntl

    fd = os.open(f"{os.path.dirname(environment)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def find_out(
    places: Layout,
    template: str,
    *,
    rootless: bool,
    hierarchy: cgroups.Hierarchy | None,
    environment: str = "",
    rules: bool = True,
) -> Settings:
    """All of it. `template` is where a root file system is, or will be; without `rules` nobody asks for a recipe."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    prefix = rootfs.interpreter()
    library = f"{prefix}/lib/{version}"
    return Settings(
        layout=places,
        rootless=rootless,
        hierarchy=hierarchy,
        landlock=landlock.version(),
        filter_code=seccomp.program(kernel.MACHINE, shared_memory=hierarchy is not None),
        template=template,
        python=f"{prefix}/bin/{version}",
        python_path=(
            f"{prefix}/lib/{version.replace('.', '')}.zip",
            library,
            f"{library}/lib-dynload",
            f"{library}/site-packages",
        ),
        resolver=resolver(),
        has_loop=not rootless and disk.available(),
        recipe=_recipe(rootless) if rules else None,
        environment=environment,
        hosts_root=rootless and jail.is_hosts_root(),
    )


def _recipe(rootless: bool) -> views.Recipe | None:
    try:
        return views.choose(rootless, views.has_subids(), views.can_overlay(rootless))
    except Unsupported:
        return None
