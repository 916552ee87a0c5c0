"""What a client is told of the server as a whole, so that a model knows beforehand what its sessions have."""

from __future__ import annotations

import sys

from .settings import Settings

_WHAT = (
    "Runs code behind a wall. A session is a sandbox with its own files, variables and packages; it is made when its "
    "session_id is first used, and lives on when this server ends. execute_python keeps its variables from call to "
    "call. Files of the session are under /workspace. Nothing reaches the host but by `apply`."
)
_NETWORKS = {
    "none": "Sessions have no network: downloads, pip, npm and git over a network fail.",
    "all": "Sessions have the network of the host, but for its own loopback.",
    "host": "Sessions share the network of the host.",
}


def instructions(settings: Settings) -> str:
    """In the words of somebody who has to decide what to do next."""
    network = settings.wishes.get("network") or "none"
    parts = [_WHAT, _NETWORKS.get(str(network), "")]
    if settings.wishes.get("image"):
        parts.append("They have the Python and the packages of an image.")
    else:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        given = ", ".join(settings.wishes.get("packages") or ())
        parts.append(f"They have Python {version} with " + (f"{given}." if given else "its standard library."))
        if settings.install:
            parts.append("install_packages adds others, also without a network.")
    return " ".join(part for part in parts if part)
