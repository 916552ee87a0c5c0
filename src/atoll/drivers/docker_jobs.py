"""From a spec to what a steward is asked for, with every path looked at."""

from __future__ import annotations

import json
import os
import random
from typing import Any

from ..engine import disk, layout, orders, roottree
from ..engine.copied import copy_source
from ..engine.launch import cloudpickle_directory
from ..engine.limits import DEFAULT_DISK
from ..engine.settings import FIRST_UID, UIDS
from ..engine.steward.lines import guest_command
from ..engine.steward.wall import FILES
from ..errors import CreateFailed, InvalidInput, Unsupported, WallUnavailable
from ..types import Enforcement, Handle, Spec
from . import docker_entry, docker_finding, docker_ground, docker_images
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

_VOID = "void"
_LENT = "/opt/cloudpickle"
_LAST_UID = (1 << 31) - 1
# It goes to the guest, with all else that is in an environment, in one message.
_LONGEST_ENV = 100_000
_KILLS = {True: "/sys/fs/cgroup/memory.events", False: "/sys/fs/cgroup/memory/memory.oom_control"}


def job_for(spec: Spec, box: str, resume: Handle | None, home: str) -> dict[str, Any]:
    """Furnish a box, and say what its wall is made of.

    Raises:
        Unsupported, InvalidInput, WallUnavailable, CreateFailed.
    """
    check(spec)
    # The tree of a codebase is atoll's own, and nobody else's.
    source = spec.source if spec.source is None or spec.codebase else orders.source_directory(spec.source, home)
    engine = docker_finding.engine()
    docker_finding.check_not_around(engine)
    image, bridge, known = _asked(engine, spec, home)
    uid, gid = _user(resume)
    _furnish(box, uid, gid, known)
    size = _disk(spec)
    grounded = os.geteuid() == 0
    if not grounded and source is not None and resume is None and spec.snapshot is None:
        copy_source(source, f"{box}/{FILES}/work")
    runtime = docker_finding.runtime()
    attached = runtime is not None and "runsc" in runtime
    plan = Plan(
        name=name_of(box),
        image=image.id,
        command=_command(spec, image, attached=attached),
        user=f"{uid}:{gid}",
        binds=[*_written(spec, box, grounded=grounded, attached=attached), *_seen(box, image, home)],
        labels={**spec.labels, ID_LABEL: os.path.basename(box), HOME_LABEL: home},
        network=spec.network,
        resources=spec.resources,
        image_env=image.env,
        volumes=image.volumes,
        checks_health=image.checks_health,
        keeps_id=_is_own(engine),
        runtime=runtime,
        attached=attached,
    )
    return {
        "engine": engine.path,
        "image": image.reference,
        "body": description(plan),
        "env": environment(image.env, spec.env, packages=bool(spec.packages)),
        "home": home,
        "uid": uid,
        "workdir": spec.workdir,
        "source": source,
        "permissions": orders.rules(spec.permissions),
        "ignore": list(spec.ignore),
        "disk": size,
        "grounded": grounded,
        "network": spec.network,
        "bridge": bridge,
        "attached": attached,
        "runtime": runtime,
        "limits": _limits(spec, size),
    }


def check(spec: Spec) -> None:
    """Raises InvalidInput for what a container cannot have."""
    if (size := len(json.dumps(dict(spec.env)))) > _LONGEST_ENV:
        raise InvalidInput(f"env has {size} bytes as JSON; a container takes {_LONGEST_ENV}. Write a file instead.")
    orders.check_workdir(spec.workdir)
    if f"{spec.workdir}/".startswith("/opt/"):
        raise InvalidInput(f"workdir={spec.workdir!r} is where the guest is; choose one like /workspace or /app.")


def holds_disk() -> bool:
    """Whether a container can have a disk of its own here."""
    return os.geteuid() == 0 and disk.available()


def _disk(spec: Spec) -> int | None:
    """How many bytes it may write; None where nothing can hold it to that.

    Raises:
        Unsupported: a limit was asked for that nothing can hold.
    """
    if holds_disk():
        return spec.resources.disk or DEFAULT_DISK
    if spec.resources.disk is not None or spec.strict:
        raise Unsupported(
            "A limit on the disk of a container needs root, loop devices and mkfs.ext4.",
            hint="Leave disk and strict out, or run as root: apt-get install e2fsprogs",
        )
    return None


def _asked(engine: Engine, spec: Spec, home: str) -> tuple[docker_images.Image, str | None, str]:
    """What the engine has to have: the image, the bridge of a network; and the users that the image knows."""
    from .docker_networks import bridge

    try:
        image = docker_images.find(engine, spec.image, home)
        interface = bridge(engine) if spec.network == "all" else None
        return image, interface, "" if image.own else docker_images.passwd(engine, image, home)
    except Unreachable as error:
        raise error.as_error() from error
    except Refused as error:
        raise CreateFailed(f"The container engine refuses: {error}.") from error


def _is_own(engine: Engine) -> bool:
    """Whether the engine runs as this user, and shows it the same inside.

    Raises:
        WallUnavailable: it runs as this user, and cannot.
    """
    if os.geteuid() == 0 or os.stat(engine.path).st_uid != os.geteuid():
        return False
    parts = engine.get("/version").get("Components") or ()
    if any("Podman" in str(part.get("Name")) for part in parts):
        return True
    raise WallUnavailable(
        "Docker without root shows the files of this user as root's inside, where nothing runs as root.",
        hint="Use Podman without root (systemctl --user start podman.socket), or Docker's own service.",
    )


def _user(resume: Handle | None) -> tuple[int, int]:
    """The user of a sandbox on the host: as root one that nobody else has, else this one."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    if resume is not None:
        return int(resume.data["uid"]), int(resume.data["uid"])
    uid = random.SystemRandom().randint(FIRST_UID + UIDS, _LAST_UID)
    return uid, uid


def _furnish(box: str, uid: int, gid: int, known: str) -> None:
    if os.geteuid() != 0:
        for name in docker_ground.PLACES:
            os.makedirs(f"{box}/{FILES}/{name}", mode=0o755, exist_ok=True)
    for name in (LINE, _VOID, "etc"):
        os.makedirs(f"{box}/{name}", mode=0o755, exist_ok=True)
    for name, text in accounts(known, uid, gid).items():
        with open(f"{box}/etc/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    for name, content in docker_entry.files(LINE_INSIDE).items():
        with open(f"{box}/{LINE}/{name}", "wb") as file:
            file.write(content)
    for name in (LINE, _VOID, "etc"):
        roottree.open_to_all(f"{box}/{name}")


def _written(spec: Spec, box: str, *, grounded: bool, attached: bool) -> list[Bind]:
    """What it may write to. Where root puts it in later, there is nothing at first."""
    targets = layout.targets(spec.workdir)
    if grounded and not attached:
        return [Bind(f"{box}/{_VOID}", target) for target in targets.values()]
    if not grounded:
        return [Bind(f"{box}/{FILES}/{name}", target, read_only=False) for name, target in targets.items()]
    return [Bind(docker_ground.place(box, name), target, read_only=False) for name, target in targets.items()]


def _seen(box: str, image: docker_images.Image, home: str) -> list[Bind]:
    """What it may look at."""
    binds = [Bind(f"{box}/{LINE}", LINE_INSIDE)]
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
        "image": True,
        "python": roottree.python(packages=bool(spec.packages)) if image.own else "",
        "kills": _KILLS[os.path.exists("/sys/fs/cgroup/cgroup.controllers")],
        # Without root a steward could not look at it either, see `DockerWall`.
        "closed": os.geteuid() == 0,
    }
    if cloudpickle_directory():
        config["cloudpickle"] = _LENT
    if image.own:
        config["python_path"] = roottree.python_path(packages=bool(spec.packages))
    line = ("--stream-fds", "0,1") if attached else ("--control-path", f"{LINE_INSIDE}/{LINE}")
    python, *command = guest_command(roottree.PYTHON, roottree.GUEST, line, config)
    if not attached:
        command.insert(command.index("-S") + 1, f"{LINE_INSIDE}/{docker_entry.ENTER}")
    return [python, *command] if image.own else [*roottree.alone_command(), *command]


def _limits(spec: Spec, size: int | None) -> dict[str, Enforcement]:
    return {
        "memory": "kernel",
        "pids": "kernel",
        "cpu": "none" if spec.resources.cpu is None else "kernel",
        "disk": "none" if size is None else "kernel",
        "sockets": "none",
    }
