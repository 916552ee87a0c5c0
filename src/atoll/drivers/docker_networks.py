"""`network="all"`: a bridge of atoll's own, on which no container reaches another, nor a cloud's metadata."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..engine import closed
from ..errors import Unsupported, WallUnavailable
from .docker_container import NETWORK
from .docker_engine import Engine, Refused

_ICC = "com.docker.network.bridge.enable_icc"
_NAME = "com.docker.network.bridge.name"


def bridge(engine: Engine) -> str:
    """The interface of the network, which is made if there is none.

    Raises:
        WallUnavailable: somebody else has a network of that name.
        Unsupported: the engine makes none.
        Refused, Unreachable.
    """
    found = _find(engine)
    if found is None:
        _make(engine)
        found = _find(engine)
    options: Mapping[str, str] = (found or {}).get("Options") or {}
    if found is None or found.get("Driver") != "bridge" or options.get(_ICC) != "false":
        raise WallUnavailable(
            f"The engine has a network {NETWORK!r} that lets containers talk to each other.",
            hint=f"Run: docker network rm {NETWORK}",
        )
    return options.get(_NAME) or f"br-{found['Id'][:12]}"


def _find(engine: Engine) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = engine.get(f"/networks/{NETWORK}")
    except Refused as error:
        if error.status == 404:
            return None
        raise
    return found


def _make(engine: Engine) -> None:
    from docker.errors import DockerException

    from .docker_images import sdk

    try:
        with sdk(engine) as client:
            client.create_network(
                NETWORK, driver="bridge", options={_ICC: "false"}, check_duplicate=True, labels={"atoll": "network"}
            )
    except DockerException as error:
        if _find(engine) is None:  # else somebody else was faster
            raise Unsupported(
                f"The engine makes no network for sandboxes: {error}.", hint='Use network="none" or "host".'
            ) from error


def separate(interface: str) -> None:
    """Have no port of a bridge reach another, whatever the engine's firewall does. Only root can.

    Raises:
        OSError: the kernel cannot.
    """
    for port in os.listdir(f"/sys/class/net/{interface}/brif"):
        with open(f"/sys/class/net/{port}/brport/isolated", "w", encoding="ascii") as file:
            file.write("1")


def close(interface: str) -> None:
    """Have nobody on a bridge reach what `engine.closed` lists, whatever the engine's firewall does. Only root can.

    On the host's side: a runtime with a network stack of its own sends past the rules of a container's namespace. The
    rules stay, as the network does.

    Raises:
        BirthFailed: nft is missing, or the kernel does not take them.
    """
    table = f"atoll-{interface}"
    # Of many who do so at once each replaces the rules in one go.
    closed.put_up(f"table inet {table}\ndelete table inet {table}\n{closed.arriving(table, interface)}")
