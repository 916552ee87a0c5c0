"""From a spec to what the engine is asked for, with every path looked at."""

from __future__ import annotations

import os
from typing import Any

from ..errors import InvalidInput
from ..types import Handle, Permissions, Spec
from . import jobs
from .layout import HOME_INSIDE, OLD_ROOT, SHOWN

_NOT_A_WORKDIR = frozenset(
    ("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr", ".python")
) | {OLD_ROOT[1:]}


def rules(permissions: Permissions | None) -> dict[str, Any] | None:
    if permissions is None:
        return None
    from ..policy.permissions import to_json

    return to_json(permissions)


def job_for(spec: Spec, resume: Handle | None, home: str) -> dict[str, Any]:
    """What the keeper needs to know, with every path looked at."""
    source = source_directory(spec.source, home) if spec.source else None
    check_workdir(spec.workdir)
    image = None
    if spec.image:
        from .images import unpacked

        image = unpacked(spec.image, home)
    resources = spec.resources
    return {
        "image": image,
        "source": source,
        "workdir": spec.workdir,
        "network": spec.network,
        "memory": resources.memory,
        "pids": resources.pids,
        "cpu": resources.cpu,
        "disk": resources.disk,
        "strict": spec.strict,
        "env": dict(spec.env),
        "lifetime": spec.lifetime,
        "resume": resume.id if resume else None,
        "environment": None,
        "shown": [],
        "stack": jobs.COMMON["stack"],
        "audit": spec.audit,
        "permissions": rules(spec.permissions),
        "ignore": list(spec.ignore),
    }


def source_directory(path: str, home: str) -> str:
    """The real path of a source tree, which must not show the sandbox what atoll keeps of others.

    Raises:
        InvalidInput: it would, or is none.
    """
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise InvalidInput(f"source={path!r} is not a directory.")
    state = os.path.realpath(home)
    if os.path.commonpath((real, state)) in (real, state):
        raise InvalidInput(
            f"source={path!r} and atoll's state directory {state} lie in one another: the sandbox would see the files "
            "of other sandboxes. Give a narrower source, or set ATOLL_HOME to a directory elsewhere."
        )
    return real


def check_workdir(workdir: str) -> None:
    """Raises InvalidInput for one that covers what the sandbox needs."""
    first = workdir.split("/")[1]
    at_home = first in ("home", "root") and workdir not in (HOME_INSIDE, "/root")
    if first in _NOT_A_WORKDIR or first == SHOWN[1:] or at_home:
        raise InvalidInput(
            f"workdir={workdir!r} lies in a place that the sandbox's system needs; choose one like /workspace, /app "
            f"or {HOME_INSIDE}."
        )
