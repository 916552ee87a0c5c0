"""What this host and its engine offer for containers, layer by layer. Starts nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ..engine import disk, roottree
from ..errors import WallUnavailable
from ..types import Layer
from . import docker_finding
from .docker_engine import Engine, Refused, Unreachable
from .docker_images import DEFAULT

# CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881 are fixed from these on.
_MENDED_RUNC = ((1, 2, 8), (1, 3, 3))
_LIMITS = {"MemoryLimit": "memory", "PidsLimit": "pids", "CpuCfsQuota": "cpu"}


def layers() -> list[Layer]:
    """Each layer, and a command for what is missing."""
    found = [Layer("docker package", ready=True, detail=f"version {version('docker')}")]
    try:
        engine = docker_finding.engine()
        told = engine.get("/version")
        info = engine.get("/info")
        docker_finding.check_not_around(engine)
    except WallUnavailable as error:
        return [*found, Layer("engine", ready=False, detail=str(error), fix=error.hint)]
    except Unreachable as error:
        return [*found, Layer("engine", ready=False, detail=str(error), fix=error.fix)]
    except Refused as error:
        detail = f"it does not answer well: {error}"
        return [*found, Layer("engine", ready=False, detail=detail, fix="Run: systemctl restart docker")]
    found.append(Layer("engine", ready=True, detail=_described(told, engine)))
    found += [_seccomp(info), _limits(info), _runc(told), _image(engine)]
    if (wanted := docker_finding.runtime()) is not None:
        found.append(_runtime(info, wanted))
    return [*found, _disk(), _rules(), _network()]


def _described(told: Mapping[str, Any], engine: Engine) -> str:
    names = [str(part.get("Name")) for part in told.get("Components") or ()]
    name = next((name for name in names if "Podman" in name), "Docker Engine")
    return f"{name} {told.get('Version')} at {engine.path}"


def _seccomp(info: Mapping[str, Any]) -> Layer:
    options = [option for option in info.get("SecurityOptions") or () if "seccomp" in option]
    if not options or any("unconfined" in option for option in options):
        fix = 'Take "seccomp-profile": "unconfined" out of /etc/docker/daemon.json, and run: systemctl restart docker'
        return Layer("seccomp", ready=False, detail="the engine uses no filter", fix=fix)
    return Layer("seccomp", ready=True, detail=options[0].removeprefix("name="))


def _limits(info: Mapping[str, Any]) -> Layer:
    missing = [word for name, word in _LIMITS.items() if info.get(name) is False]
    if missing:
        fix = "Boot the kernel with cgroup_enable=memory, and give the engine these controllers."
        return Layer("limits", ready=False, detail=f"the engine cannot hold: {', '.join(missing)}", fix=fix)
    return Layer("limits", ready=True, detail=f"memory, pids, cpu by control groups v{info.get('CgroupVersion', '1')}")


def _runc(told: Mapping[str, Any]) -> Layer:
    """A distribution may have mended an old version; nobody can tell from its number."""
    parts = [part for part in told.get("Components") or () if "runc" in str(part.get("Name")).lower()]
    text = str(parts[0].get("Version")) if parts else ""
    numbers = tuple(map(int, re.findall(r"\d+", text)[:3]))
    if not numbers:
        return Layer("runtime", ready=True, detail="not runc, or it does not say which version", required=False)
    newest = [least for least in _MENDED_RUNC if least[:2] == numbers[:2]]
    if numbers >= _MENDED_RUNC[-1] or (newest and numbers >= newest[0]):
        return Layer("runtime", ready=True, detail=f"runc {text}", required=False)
    return Layer(
        "runtime",
        ready=False,
        detail=f"runc {text} may have CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881",
        fix="apt-get update && apt-get install --only-upgrade runc",
        required=False,
    )


def _image(engine: Engine) -> Layer:
    reference = f"{DEFAULT}:{roottree.tag()}"
    try:
        engine.get(f"/images/{reference}/json")
    except (Refused, Unreachable):
        return Layer("default image", ready=True, detail=f"{reference} is made at the first use", required=False)
    return Layer("default image", ready=True, detail=reference, required=False)


def _runtime(info: Mapping[str, Any], wanted: str) -> Layer:
    known = sorted(info.get("Runtimes") or ())
    if wanted not in known:
        fix = f'Add {wanted!r} to "runtimes" in /etc/docker/daemon.json, or run: unset ATOLL_DOCKER_RUNTIME'
        return Layer("runtime asked for", ready=False, detail=f"the engine has only {', '.join(known)}", fix=fix)
    return Layer("runtime asked for", ready=True, detail=wanted)


def _disk() -> Layer:
    name = "disk limit in the kernel"
    if os.geteuid() != 0:
        return Layer(name, ready=False, detail="only root can hold it", fix="Run as root.", required=False)
    if not disk.available():
        fix = "apt-get install e2fsprogs"
        return Layer(name, ready=False, detail="no loop devices, or no mkfs.ext4", fix=fix, required=False)
    return Layer(name, ready=True, detail="an ext4 file system for each sandbox", required=False)


def _rules() -> Layer:
    name = "path permissions and review"
    if os.geteuid() != 0:
        return Layer(name, ready=False, detail="they need mounts", fix="Run as root.", required=False)
    return Layer(name, ready=True, detail="overlayfs, recipe A", required=False)


def _network() -> Layer:
    from ..engine import probe

    if os.geteuid() != 0:
        detail, fix = "refused: only root can close a cloud's metadata to containers", "Run as root, or use the jail."
        return Layer("network=all", ready=False, detail=detail, fix=fix, required=False)
    return probe.network({"nft": "nftables"})
