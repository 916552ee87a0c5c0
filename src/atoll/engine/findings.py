"""What this host offers to those who make sandboxes, found out once before they do."""

from __future__ import annotations

import os
import sys

from ..errors import Unsupported
from . import cgroups, disk, kernel, landlock, rootfs, seccomp, tracing, views
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


def leave_callers_group(hierarchy: cgroups.Hierarchy | None) -> None:
    """The caller's control group may be limited, or killed with the caller; ours must not be."""
    if hierarchy is None:
        return
    for parent in set(hierarchy.parents.values()):
        target = parent if hierarchy.version == 1 else f"{parent}/zygote"
        try:
            os.makedirs(target, exist_ok=True)
            with open(f"{target}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
        except OSError as error:
            sys.stderr.write(f"The zygote stays in its caller's control group: {error}.\n")


def find_out(
    places: Layout, template: str, *, rootless: bool, hierarchy: cgroups.Hierarchy | None, environment: str = ""
) -> Settings:
    """All of it. `template` is where a root file system is, or will be."""
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
        recipe=_recipe(rootless),
        live=not rootless and hierarchy is not None and tracing.available(),
        environment=environment,
    )


def _recipe(rootless: bool) -> views.Recipe | None:
    try:
        return views.choose(rootless, views.has_subids(), views.can_overlay(rootless))
    except Unsupported:
        return None
