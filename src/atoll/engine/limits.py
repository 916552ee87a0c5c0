"""Who holds each limit on this host, decided before anything is promised. Pure."""

from __future__ import annotations

from typing import Any

from .settings import BirthFailed, Settings

DEFAULT_DISK = 1 << 30


def plan(job: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The job with its limits made concrete: `enforcement`, `rlimits`, `walls`, `disk`.

    Raises:
        BirthFailed: something that was asked for cannot be enforced here, or with `strict` is only polled. The memory
            of sockets is declared, and not asked for.
    """
    hierarchy = settings.hierarchy
    held = hierarchy.controllers if hierarchy else frozenset()
    disk = job["disk"] or DEFAULT_DISK
    loop = settings.has_loop
    if job["cpu"] is not None and "cpu" not in held:
        raise BirthFailed("A cpu limit needs a writable control group, which this host does not give.", "unsupported")
    enforcement = {
        "memory": "kernel" if "memory" in held else "polled",
        # Without a control group RLIMIT_NPROC counts in the sandbox's own user namespace.
        "pids": "polled" if settings.hosts_root and "pids" not in held else "kernel",
        "cpu": "kernel" if job["cpu"] is not None else "none",
        "disk": "kernel" if loop else "polled",
    }
    if job["strict"] and (polled := sorted(k for k, v in enforcement.items() if v == "polled")):
        raise BirthFailed(
            f"strict=True, but on this host the limit on {' and '.join(polled)} can only be polled; "
            "run as root, or delegate a control group with memory and pids to this user.",
            "unsupported",
        )
    # Not a reason to refuse: no kernel counts all of it, on any host (see `sockets`).
    enforcement["sockets"] = "none" if job["network"] == "host" else "polled"
    rlimits = {"fsize": disk}
    if "memory" not in held:
        rlimits["as"] = job["memory"]
    if "pids" not in held:
        rlimits["nproc"] = job["pids"]
    return {
        **job,
        "quota": disk,
        "loop": loop,
        "enforcement": enforcement,
        "rlimits": rlimits,
    }


def walls(settings: Settings) -> list[str]:
    """The layers that stand around a sandbox here, as its info names them."""
    names = ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"]
    stand = [f"{name} namespace" for name in names]
    if settings.hierarchy:
        stand.append(f"control group v{settings.hierarchy.version}")
    stand += ["no capabilities", "no_new_privs"]
    if settings.landlock:
        stand.append(f"Landlock v{settings.landlock}")
    return [*stand, "seccomp"]
