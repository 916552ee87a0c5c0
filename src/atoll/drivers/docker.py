"""Containers of Docker or Podman: the same guest and the same files, behind the engine's wall."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from ..errors import AtollError
from ..home import state_dir
from ..packages.shown import Packaged
from ..policy.offers import narrowed
from ..types import Capability, Handle, Layer, Offers, Spec
from . import docker_jobs
from .docker_container import name_of
from .docker_engine import Engine, Refused, Unreachable
from .docker_ground import lift
from .docker_history import CommittedHistory
from .docker_review import Reviewed

if getattr(find_spec("docker"), "origin", None) is None:
    # Loading it takes longer than a sandbox does, so it is only looked for.
    raise ModuleNotFoundError("No module named 'docker'", name="docker")


class DockerDriver(CommittedHistory, Reviewed, Packaged):
    name = "docker"
    summary = "containers of Docker or Podman on this machine"
    isolation = "container"
    names_images = True
    warm = True
    capabilities = frozenset(
        {
            Capability.COMMANDS,
            Capability.CODE,
            Capability.PTY,
            Capability.WATCH,
            Capability.ISOLATION,
            Capability.NETWORK_NONE,
            Capability.NETWORK_ALL,
            Capability.NETWORK_HOST,
            Capability.LIMITS,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.IMAGE,
            Capability.PACKAGES,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
            Capability.PERMISSIONS,
            Capability.LIVE_RULES,
            Capability.REVIEW,
            Capability.SNAPSHOT,
            Capability.FORK,
        }
    )
    wall = "atoll.drivers.docker_wall:DockerWall"

    async def offers(self) -> Offers:
        offers = await super().offers()
        if os.geteuid() == 0:
            return offers
        offers = narrowed(
            offers,
            (Capability.PERMISSIONS, Capability.LIVE_RULES, Capability.REVIEW),
            "Path permissions and codebases in a container need root.",
            'Run as root, use the jail, or say preset="full-access" (--preset full-access) to show all of the source.',
        )
        return narrowed(
            offers,
            (Capability.NETWORK_ALL,),
            'network="all" in a container needs root: only root can close to it where clouds keep their credentials.',
            "Run as root, or use the jail, which closes them for an ordinary user, too.",
        )

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        return docker_jobs.job_for(spec, box, resume, state_dir())

    async def workshop(self, spec: Spec, shown: Sequence[str]) -> Handle:
        if not docker_jobs.holds_disk():
            spec = spec._replace(resources=spec.resources._replace(disk=None))
        return await super().workshop(spec, shown)

    def sweep(self, handle: Handle, box: str) -> None:
        try:
            Engine(str(handle.data["engine"])).delete(f"/containers/{name_of(box)}", force=True, v=True)
        except (Refused, Unreachable):
            pass  # it is gone, or is found by its label when there is an engine again
        lift(box)

    async def first_use(self, spec: Spec) -> str | None:
        from . import docker_finding, docker_images

        try:
            there = spec.image is not None or docker_images.has_default(docker_finding.engine())
        except (AtollError, Unreachable, Refused):
            return None  # which `create` tells better
        return None if there else "Making an image of this machine, once: seconds to a minute."

    async def health(self) -> list[Layer]:
        from .docker_doctor import layers

        return await self.io.in_thread(layers)
