"""The OCI bundle of a sandbox: what `runsc` is told to run, with what. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_NAMESPACES = ("pid", "network", "ipc", "uts", "mount")
_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
# What the guest's first steps take, after which none is left; see `guest.descending`.
FIRST_STEPS = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_DAC_OVERRIDE", "CAP_NET_ADMIN")
_HOST_NAME = "atoll"
_OPEN_FILES = 65536
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the sandbox's own


class Place(NamedTuple):
    """A directory or file of the host, and where the sandbox sees it."""

    source: str
    inside: str
    writable: bool = False

    def mount(self) -> dict[str, Any]:
        options = ["rbind", "nosuid", "nodev", "rw" if self.writable else "ro"]
        return {"destination": self.inside, "type": "bind", "source": self.source, "options": options}


def config(
    root: str, command: Sequence[str], places: Sequence[Place], largest: int, network: str | None = None
) -> dict[str, Any]:
    """The bundle's config.json: a read-only root, some places, and one program that is root for its first steps.

    `largest` is how large a single file may become; `network` the path of a namespace, where it is not a new one.
    """
    return {
        "ociVersion": "1.0.2",
        "hostname": _HOST_NAME,
        "root": {"path": root, "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(command),
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {name: list(FIRST_STEPS) for name in _SETS},
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "hard": _OPEN_FILES, "soft": _OPEN_FILES},
                {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
                {"type": "RLIMIT_FSIZE", "hard": largest, "soft": largest},
            ],
            "noNewPrivileges": True,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"]},
            {"destination": _SHARED_MEMORY, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]},
            *(place.mount() for place in places),
        ],
        "linux": {
            "namespaces": [
                {"type": name, "path": network} if network and name == "network" else {"type": name}
                for name in _NAMESPACES
            ]
        },
    }


def arguments(
    state: str, platform: str, *, rootless: bool, networked: bool = False, reaches_files: bool = False
) -> list[str]:
    """The options of every call of `runsc` for one sandbox, whose state is in a directory of its own.

    A kernel that `reaches_files` by itself is told to leave that to its gofer: only there the host knows what is
    mounted on a file, and keeps it from being replaced.
    """
    return [
        f"--root={state}",
        f"--platform={platform}",
        f"--network={'sandbox' if networked else 'none'}",
        "--host-uds=none",
        "--ignore-cgroups",
        *(["--directfs=false"] if reaches_files else []),
        *(["--rootless"] if rootless else []),
    ]
