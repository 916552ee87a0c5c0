"""The image of a snapshot: how it is made of copied files, found, and read again."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

from docker.errors import DockerException

from ..engine.steward.originals import RECORDS
from ..engine.steward.shelf import Draft
from ..errors import SandboxError
from ..home import state_dir
from . import docker_blobs
from .docker_container import HOME_LABEL, MANIFEST_LABEL, SNAPSHOT_LABEL
from .docker_engine import Engine
from .docker_images import sdk
from .docker_snapshots import check_free, reference, written

_INSIDE = ".atoll"


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    """Errors of the package as ours."""
    try:
        yield
    except DockerException as error:
        raise SandboxError(f"The container engine cannot {what}: {error}.") from error


def commit(engine: Engine, draft: Draft, image: str, source: str | None, manifest: dict[str, Any]) -> None:
    """Make an image of a sandbox's own image and of its files, which have been copied to a draft.

    Raises:
        InvalidInput: somebody else has made one of that name meanwhile.
        SandboxError: the engine refuses, or there is not enough room.
    """
    blobs = f"{draft.path}/blobs"
    layers = docker_blobs.pack(draft.files, blobs, source)
    names = [*map(str, range(layers)), *(name for name in RECORDS if os.path.exists(f"{blobs}/{name}"))]
    manifest = {**manifest, "size": sum(os.path.getsize(f"{blobs}/{name}") for name in names)}
    labels = {SNAPSHOT_LABEL: str(manifest["name"]), HOME_LABEL: state_dir(), MANIFEST_LABEL: written(manifest)}
    repository, _, tag = reference(str(manifest["name"])).partition(":")
    lock = os.open(os.path.dirname(draft.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of many who want a name one gets it
        check_free(engine, str(manifest["name"]))
        with _telling("keep a snapshot"), sdk(engine) as client, open(f"{draft.path}/tar", "w+b") as file:
            _archive(file, blobs, names)
            container = client.create_container(image, ["/"])["Id"]
            try:
                file.seek(0)
                client.put_archive(container, "/", file)
                client.commit(container, repository=repository, tag=tag, changes=list(map(_label, labels.items())))
            finally:
                client.remove_container(container, force=True, v=True)
    finally:
        os.close(lock)


def _label(label: tuple[str, str]) -> str:
    """As a line of a Dockerfile, which both engines take."""
    name, value = label
    quoted = json.dumps(value, ensure_ascii=False).replace("$", "\\$")
    return f"LABEL {name}={quoted}"


def _archive(file: Any, blobs: str, names: list[str]) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folder = tarfile.TarInfo(_INSIDE)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        tar.addfile(folder, io.BytesIO())
        for name in names:
            member = tar.gettarinfo(f"{blobs}/{name}", f"{_INSIDE}/{name}")
            member.uid = member.gid = 0
            member.mode = 0o600
            with open(f"{blobs}/{name}", "rb") as blob:
                tar.addfile(member, blob)


def fetch(engine: Engine, manifest: Mapping[str, Any], draft: Draft, size: int | None) -> int | None:
    """Have the files of a snapshot in a draft, on a disk of some size if there is one; gives whose they are.

    Raises:
        SandboxError: there is not enough room for them, the image was changed, or the engine refuses.
    """
    blobs = f"{draft.path}/blobs"
    os.mkdir(blobs, 0o700)
    with _telling("give back a snapshot"), sdk(engine) as client, open(f"{draft.path}/tar", "w+b") as file:
        container = client.create_container(str(manifest["layers"][0]), ["/"])["Id"]
        try:
            stream, _ = client.get_archive(container, f"/{_INSIDE}")
            file.writelines(stream)
        finally:
            client.remove_container(container, force=True, v=True)
        file.seek(0)
        _extract(file, blobs)
    began = manifest["spec"]
    layered = bool(began.get("source") or began.get("codebase")) and os.geteuid() == 0
    return docker_blobs.unpack(blobs, draft.files, size, state_dir(), layered=layered)


def _extract(file: Any, blobs: str) -> None:
    """Only what `_archive` has put there, whatever else an image says."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                name = os.path.basename(member.name)
                known = name in RECORDS or (name.isdigit() and len(name) < 5)
                content = tar.extractfile(member) if member.isreg() and known else None
                if content is None:
                    continue
                with open(f"{blobs}/{name}", "xb") as blob:
                    while piece := content.read(1 << 20):
                        blob.write(piece)
    except (tarfile.TarError, FileExistsError) as error:
        raise SandboxError(f"The image of a snapshot was changed: {error}.") from error
