"""Containers of Docker or Podman: the same guest and the same files, behind the engine's wall."""

from __future__ import annotations

import os
import random
from importlib.util import find_spec
from typing import Any

from ..engine import layout, roottree
from ..engine.launch import cloudpickle_directory
from ..engine.settings import FIRST_UID, UIDS
from ..engine.steward.client import StewardDriver
from ..engine.steward.lines import guest_command
from ..engine.steward.wall import FILES
from ..errors import CreateFailed, InvalidInput, Unsupported, WallUnavailable
from ..home import state_dir
from ..types import Capability, Enforcement, Handle, Layer, Spec
from . import docker_finding, docker_images
from .docker_container import (
    HOME_LABEL,
    ID_LABEL,
    LINE,
    LINE_INSIDE,
    Bind,
    Plan,
    accounts,
    description,
    environment,
    name_of,
)
from .docker_engine import Engine, Refused, Unreachable

if getattr(find_spec("docker"), "origin", None) is None:
    # Loading it takes longer than a sandbox does, so it is only looked for.
    raise ModuleNotFoundError("No module named 'docker'", name="docker")

_PLACES = {"work": "", "home": layout.HOME_INSIDE, "tmp": "/tmp"}  # noqa: S108 - the sandbox's own
_LENT = "/opt/cloudpickle"
_LAST_UID = (1 << 31) - 1


class DockerDriver(StewardDriver):
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
            Capability.NETWORK_HOST,
            Capability.LIMITS,
            Capability.LIFETIME,
            Capability.IMAGE,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
        }
    )
    wall = "atoll.drivers.docker_wall:DockerWall"

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        _refuse(spec)
        engine = docker_finding.engine()
        home = state_dir()
        try:
            image = docker_images.find(engine, spec.image, home)
        except Unreachable as error:
            raise error.as_error() from error
        except Refused as error:
            raise CreateFailed(f"The container engine refuses: {error}.") from error
        uid, gid = _user(resume)
        _furnish(box, uid, gid)
        runtime = docker_finding.runtime()
        attached = runtime is not None and "runsc" in runtime
        plan = Plan(
            name=name_of(box),
            image=image.id,
            command=_command(spec, image, attached=attached),
            user=f"{uid}:{gid}",
            binds=_binds(spec, box, image, home),
            labels={**spec.labels, ID_LABEL: os.path.basename(box), HOME_LABEL: home},
            network=spec.network,
            resources=spec.resources,
            image_env=image.env,
            volumes=image.volumes,
            runtime=runtime,
            attached=attached,
        )
        return {
            "engine": engine.path,
            "image": image.reference,
            "body": description(plan),
            "env": environment(image.env, spec.env),
            "uid": uid,
            "network": spec.network,
            "attached": attached,
            "runtime": runtime,
            "limits": _limits(spec),
        }

    def sweep(self, handle: Handle, box: str) -> None:
        try:
            Engine(str(handle.data["engine"])).delete(f"/containers/{name_of(box)}", force=True, v=True)
        except (Refused, Unreachable):
            return  # it is gone, or is found by its label when there is an engine again

    async def health(self) -> list[Layer]:
        return [Layer("engine", ready=True, detail="…")]


def _refuse(spec: Spec) -> None:
    """What is asked for by name and cannot be given."""
    wishes = {
        "audit": spec.audit,
        "packages": bool(spec.packages),
        f"network={spec.network!r}": spec.network == "all",
    }
    for wish, asked in wishes.items():
        if asked:
            raise Unsupported(f"The docker driver cannot honour {wish}.", hint="Leave it out, or use another driver.")


def _user(resume: Handle | None) -> tuple[int, int]:
    """The user of a sandbox on the host: as root one that nobody else has, else this one."""
    if resume is not None:
        return int(resume.data["uid"]), int(resume.data["uid"])
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    uid = random.SystemRandom().randint(FIRST_UID + UIDS, _LAST_UID)
    return uid, uid


def _furnish(box: str, uid: int, gid: int) -> None:
    for name in _PLACES:
        path = f"{box}/{FILES}/{name}"
        os.makedirs(path, mode=0o755, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(path, uid, gid)
    for name in (LINE, "etc"):
        os.makedirs(f"{box}/{name}", mode=0o755, exist_ok=True)
    for name, text in accounts("", uid, gid).items():
        with open(f"{box}/etc/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def _binds(spec: Spec, box: str, image: docker_images.Image, home: str) -> list[Bind]:
    binds = [Bind(f"{box}/{FILES}/{name}", target or spec.workdir, read_only=False) for name, target in _PLACES.items()]
    binds += [Bind(f"{box}/{LINE}", LINE_INSIDE)]
    binds += [Bind(f"{box}/etc/{name}", f"/etc/{name}") for name in ("passwd", "group")]
    if not image.own:
        binds.append(Bind(roottree.self_contained(home), roottree.ALONE))
    elif packages := roottree.site_packages():
        binds.append(Bind(packages, roottree.SITE_PACKAGES))
    if lent := cloudpickle_directory():
        binds.append(Bind(lent, _LENT))
    return binds


def _command(spec: Spec, image: docker_images.Image, *, attached: bool) -> list[str]:
    config: dict[str, Any] = {
        "workdir": spec.workdir,
        "home": layout.HOME_INSIDE,
        "python": roottree.PYTHON if image.own else "",
    }
    if cloudpickle_directory():
        config["cloudpickle"] = _LENT
    if image.own:
        *library, site = roottree.PYTHON_PATH
        own = f"{layout.HOME_INSIDE}/.local/lib/{os.path.basename(roottree.LIBRARY)}/site-packages"
        config["python_path"] = [*library, own, site]
    line = ("--stream-fds", "0,1") if attached else ("--control-path", f"{LINE_INSIDE}/{LINE}")
    command = guest_command(roottree.PYTHON, roottree.GUEST, line, config)
    return command if image.own else [*roottree.alone_command(), *command[1:]]


def _limits(spec: Spec) -> dict[str, Enforcement]:
    return {
        "memory": "kernel",
        "pids": "kernel",
        "cpu": "none" if spec.resources.cpu is None else "kernel",
        "disk": "none",
    }
