"""What a client asks the engine for: one flat JSON object. Light, for the client imports it. Pure."""

from __future__ import annotations

from typing import Any

from .layout import WORKSPACE

# What most callers ask for; a sandbox for it can be finished before anybody asks.
COMMON: dict[str, Any] = {
    "image": None,
    "source": None,
    "workdir": WORKSPACE,
    "network": "none",
    "memory": 512 << 20,
    "pids": 256,
    "cpu": None,
    "disk": None,
    "strict": False,
    "env": {},
    "lifetime": 3600.0,
    "resume": None,
    "environment": None,
    "shown": [],
    "stack": {"work": [], "tmp": [], "home": [], "top": "disk"},
    "permissions": None,
    "ignore": [],
}


def kind(job: dict[str, Any], *, has_group: bool, environment: str | None = None) -> str:
    """Which parked sandbox would do: "closed" (finished), "open" (can still be given mounts), or "none".

    What is set from outside (environment, lifetime, limits of a control group) needs no open one; limits that a
    process must set on itself do, and so does network="all": a finished sandbox hides its namespaces from pasta.
    `environment` is what all sandboxes of this zygote have.
    """
    if job["image"] or job["resume"] or job["workdir"] != WORKSPACE or job["network"] == "host":
        return "none"
    usual = has_group or (job["memory"] == COMMON["memory"] and job["pids"] == COMMON["pids"])
    if job["environment"] != environment:
        return "open"
    if job["source"] or job["stack"]["work"] or job["disk"] or job["strict"] or job["network"] == "all" or not usual:
        return "open"
    return "closed"
