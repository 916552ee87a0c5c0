"""Which engine to use. It must be on this machine: a sandbox's files are, and its containers have to see them."""

from __future__ import annotations

import json
import os
import re

from ..errors import WallUnavailable
from .docker_engine import Engine, Refused

# What Docker and Podman mount at these places of a container comes from a directory that has its name. A host has other
# mounts of the containers that it runs.
_CONTAINER = re.compile(
    r"^\S+ \S+ \S+ \S*containers/([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ", re.MULTILINE
)
DOCKER = "/var/run/docker.sock"


def engine() -> Engine:
    """That of $DOCKER_HOST, else of the current context, else the first socket of Docker or Podman that is there.

    Raises:
        WallUnavailable: it is on another machine.
    """
    host = os.environ.get("DOCKER_HOST") or _of_context() or f"unix://{_usual()}"
    scheme, _, path = host.partition("://")
    if scheme != "unix" or not path.startswith("/"):
        raise WallUnavailable(
            f"The container engine is at {host}, which may be another machine: its containers could not see the files "
            "of sandboxes here.",
            hint="Set DOCKER_HOST to the socket of an engine on this machine, such as unix:///var/run/docker.sock.",
        )
    return Engine(os.path.normpath(path))


def is_around(engine: Engine) -> bool:
    """Whether the engine runs the container that this process is in: then it sees other files and processes than we.

    Raises:
        Unreachable: there is no engine.
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        found = set(_CONTAINER.findall(file.read()))
    for container in found:
        try:
            engine.get(f"/containers/{container}/json")
        except Refused:
            continue
        return True
    return False


def check_not_around(engine: Engine) -> None:
    """Raises WallUnavailable: it is."""
    if is_around(engine):
        raise WallUnavailable(
            f"The engine at {engine.path} runs the container that this is in: it sees neither the files of sandboxes "
            "here, nor does this see its containers' processes.",
            hint="Run atoll beside the engine and not in one of its containers, or use the jail in this one "
            "(docs/how-to/containers.md).",
        )


def runtime() -> str | None:
    """The OCI runtime that the user wants by `$ATOLL_DOCKER_RUNTIME`; None for the engine's own choice."""
    return os.environ.get("ATOLL_DOCKER_RUNTIME") or None


def _usual() -> str:
    own = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    places = (DOCKER, f"{own}/docker.sock", "/run/podman/podman.sock", f"{own}/podman/podman.sock")
    return next((path for path in places if os.path.exists(path)), DOCKER)


def _of_context() -> str | None:
    """What `docker context use` has chosen; the package that knows how is loaded only where something was."""
    chosen = os.environ.get("DOCKER_CONTEXT") or _configured()
    if not chosen or chosen == "default":
        return None
    from docker.context import ContextAPI

    found = ContextAPI.get_context(chosen)
    if found is None:
        raise WallUnavailable(f"There is no docker context {chosen!r}.", hint="Run: docker context ls")
    return str(found.Host)


def _configured() -> str | None:
    directory = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    try:
        with open(f"{directory}/config.json", encoding="utf-8") as file:
            value = json.load(file).get("currentContext")
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None
