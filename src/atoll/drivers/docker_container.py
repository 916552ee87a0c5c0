"""What the engine is asked for: pure functions from a plan to the description of a container."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..engine import layout
from ..types import Resources

LINE_INSIDE = "/run/atoll"
LINE = "line"
ID_LABEL, HOME_LABEL = "atoll.id", "atoll.home"
SNAPSHOT_LABEL, MANIFEST_LABEL = "atoll.snapshot", "atoll.manifest"
NETWORK = "atoll"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What an image could say to the loader of the guest's Python. Commands get it, the guest does not.
_OF_THE_LOADER = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES")
_OPEN_FILES, _PROCESSES = 4096, 32768
# Tasks of a kernel in user space, which are counted as the sandbox's.
_OF_THE_RUNTIME = 512
_MOST_USERS = 200
_VOLUME_SIZE = 64 << 20


class Bind(NamedTuple):
    """A file or directory of this machine that is seen inside."""

    source: str
    target: str
    read_only: bool = True


class Plan(NamedTuple):
    """A sandbox, as far as its container is concerned.

    Args:
        image: the engine's name or id of it.
        command: what is started first: the guest.
        user: "uid:gid", never root's.
        volumes: the places that the image wants to have volumes at; each is a small tmpfs instead.
        runtime: None for the engine's own.
        attached: whether the guest is reached by its standard input and output.
        checks_health: whether the image wants to; here nobody listens.
        keeps_id: whether the user is the same on both sides of a user namespace; for Podman without root.
    """

    name: str
    image: str
    command: Sequence[str]
    user: str
    binds: Sequence[Bind]
    labels: Mapping[str, str]
    network: str
    resources: Resources
    image_env: Sequence[str] = ()
    volumes: Sequence[str] = ()
    runtime: str | None = None
    attached: bool = False
    checks_health: bool = False
    keeps_id: bool = False


def description(plan: Plan) -> dict[str, Any]:
    """The body of `POST /containers/create`. Nothing in it depends on how the engine is configured to be weak."""
    body: dict[str, Any] = {
        "Image": plan.image,
        "User": plan.user,
        "Hostname": layout.HOST_NAME,
        "WorkingDir": "/",
        "Entrypoint": list(plan.command),
        "Cmd": [],
        "Env": [f"{name}=" for name in _OF_THE_LOADER if any(e.startswith(f"{name}=") for e in plan.image_env)],
        "Labels": dict(plan.labels),
        "HostConfig": _host(plan),
    }
    if plan.checks_health:
        body["Healthcheck"] = {"Test": ["NONE"]}
    if plan.attached:
        # Once is enough: when the line is lost, the guest's input ends, and the guest with it.
        body |= {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True, "AttachStdout": True}
    return body


def _host(plan: Plan) -> dict[str, Any]:
    resources = plan.resources
    host: dict[str, Any] = {
        "Mounts": [_mount(bind) for bind in plan.binds] + [_volume(path) for path in plan.volumes],
        "NetworkMode": _NETWORKS[plan.network],
        "Memory": resources.memory,
        # Together with swap: there is none.
        "MemorySwap": resources.memory,
        "PidsLimit": resources.pids + (_OF_THE_RUNTIME if plan.attached else 0),
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "Privileged": False,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        # A core file never fits into a byte, and only this keeps the kernel from a host's crash reporter.
        # Podman would try to raise the number of processes beyond what it may; they are bounded above.
        "Ulimits": [_ulimit("core", 1), _ulimit("nofile", _OPEN_FILES), _ulimit("nproc", _PROCESSES)],
    }
    if resources.cpu is not None:
        host["NanoCpus"] = int(resources.cpu * 1e9)
    if plan.runtime is not None:
        host["Runtime"] = plan.runtime
    if plan.keeps_id:
        host["UsernsMode"] = "keep-id"
    return host


_NETWORKS = {"none": "none", "host": "host", "all": NETWORK}


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}


def _mount(bind: Bind) -> dict[str, Any]:
    # As a mount and not as a "bind": that would make a directory, as root, where the engine does not see ours.
    return {
        "Type": "bind",
        "Source": bind.source,
        "Target": bind.target,
        "ReadOnly": bind.read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _volume(path: str) -> dict[str, Any]:
    return {"Type": "tmpfs", "Target": path, "TmpfsOptions": {"SizeBytes": _VOLUME_SIZE, "Mode": 0o755}}


def showing(body: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """A description with more of this machine in it, read-only, by where it is seen."""
    host = body["HostConfig"]
    mounts = [*host["Mounts"], *(_mount(Bind(source, inside)) for inside, source in places.items())]
    return {**body, "HostConfig": {**host, "Mounts": mounts}}


def environment(image_env: Sequence[str], env: Mapping[str, str], *, packages: bool = False) -> dict[str, str]:
    """The whole environment of a sandbox's commands: the image's, what every sandbox has, and the user's."""
    of_image = dict(entry.split("=", 1) for entry in image_env if "=" in entry)
    made_with = f"{layout.PACKAGES}/bin:" if packages else ""
    return {
        "PATH": f"{layout.HOME_INSIDE}/.local/bin:{made_with}{of_image.pop('PATH', _PATH)}",
        "LANG": "C.UTF-8",
        **of_image,
        "HOME": layout.HOME_INSIDE,
        "USER": layout.USER_NAME,
        "LOGNAME": layout.USER_NAME,
        "SHELL": "/bin/sh",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        **env,
    }


def accounts(own: str, uid: int, gid: int) -> dict[str, str]:
    """`passwd` and `group` for inside, with the sandbox's user in them; `own` is the image's passwd."""
    lines = own.splitlines()[:_MOST_USERS]
    others = [line for line in lines if line.count(":") == 6 and line.split(":")[0] != layout.USER_NAME]
    others = others or ["root:x:0:0:root:/root:/bin/sh", "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin"]
    user = f"{layout.USER_NAME}:x:{uid}:{gid}::{layout.HOME_INSIDE}:/bin/sh"
    groups = ["root:x:0:", f"{layout.USER_NAME}:x:{gid}:", "nogroup:x:65534:"]
    return {"passwd": "\n".join([*others, user, ""]), "group": "\n".join([*groups, ""])}


def name_of(box: str) -> str:
    """Of the container of a box; each has a name that nobody else chooses."""
    return f"atoll-{os.path.basename(box)}"
