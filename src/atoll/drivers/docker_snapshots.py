"""Snapshots as the engine has them: images with labels."""

from __future__ import annotations

import binascii
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput, SandboxError, SnapshotNotFound
from ..home import state_dir
from . import docker_finding
from .docker_container import HOME_LABEL, MANIFEST_LABEL, SNAPSHOT_LABEL
from .docker_engine import Engine, Refused, Unreachable

REPOSITORY = "atoll-snapshot"


def reference(name: str) -> str:
    """Of the image of a snapshot. Two state directories may each have one of the same name."""
    import hashlib

    return f"{REPOSITORY}-{hashlib.sha256(state_dir().encode()).hexdigest()[:12]}:{name}"


def _inspect(engine: Engine, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = engine.get(f"/images/{reference(name)}/json")
    except Refused as error:
        if error.status == 404:
            return None
        raise
    except Unreachable as error:
        raise error.as_error() from error
    return found


def find(engine: Engine, name: str) -> Mapping[str, Any]:
    found = _inspect(engine, name)
    if found is None:
        raise SnapshotNotFound(f"No snapshot has the name {name!r}.", hint="`atoll snapshot list` shows them.")
    return _manifest((found.get("Config") or {}).get("Labels") or {}, found["Id"])


def written(manifest: Mapping[str, Any]) -> str:
    """What is known of a snapshot, as the text of a label in which nothing has a meaning to anybody."""
    return binascii.b2a_base64(json.dumps(manifest).encode(), newline=False).decode("ascii")


def _manifest(labels: Mapping[str, str], image: str) -> Mapping[str, Any]:
    try:
        manifest = json.loads(binascii.a2b_base64(labels[MANIFEST_LABEL]))
    except (KeyError, ValueError):
        raise SnapshotNotFound(f"The image {image[:19]} says nothing of a snapshot.") from None
    return {**manifest, "layers": [image]}


def listing() -> list[Mapping[str, Any]]:
    filters = {"label": [f"{HOME_LABEL}={state_dir()}", SNAPSHOT_LABEL]}
    try:
        images = docker_finding.engine().get("/images/json", filters=filters) or []
    except Unreachable as error:
        raise error.as_error() from error
    found = []
    for image in images:
        with contextlib.suppress(SnapshotNotFound):
            found.append(_manifest(image.get("Labels") or {}, image["Id"]))
    return sorted(found, key=lambda each: float(each.get("created", 0.0)), reverse=True)


def delete(engine: Engine, name: str) -> None:
    find(engine, name)
    try:
        engine.delete(f"/images/{reference(name)}")
    except Unreachable as error:
        raise error.as_error() from error
    except Refused as error:
        if error.status != 404:  # somebody else was faster
            raise SandboxError(f"The container engine cannot delete the image of a snapshot: {error}.") from error


def check_free(engine: Engine, name: str) -> None:
    if _inspect(engine, name) is not None:
        raise InvalidInput(f"There is already a snapshot {name!r}; delete it first.")
