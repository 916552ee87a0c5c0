"""Snapshots that are layers to a file and back; see `engine.portable`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine.layers import Layers
from ..engine.layout import Layout
from ..engine.portable import apart
from ..errors import AtollError, InvalidInput, SandboxError, Unsupported, file_error
from ..policy.permissions import to_json
from ..policy.spec import spec_from_json
from ..types import Spec

_CHUNK = 1 << 20
_PACKED = (".gz", ".tgz")


def export(places: Layout, found: Mapping[str, Any], path: str) -> None:
    """Raises Unsupported, FileError, InvalidInput."""
    spec = spec_from_json(found["spec"])
    if spec.image is not None:
        raise Unsupported(
            f"The snapshot {found['name']!r} was made with image={spec.image!r}, which a file of it would not have."
        )
    permissions = None if spec.permissions is None else to_json(spec.permissions)
    with _source(spec, found) as source, _draft(path) as (draft, fd):
        request = {
            "do": "export",
            "home": places.home,
            "wall": places.wall,
            "name": found["name"],
            "source": source,
            "permissions": permissions,
            "ignore": list(spec.ignore),
        }
        _check(apart.run(request, fd), path)
        if path.endswith(_PACKED):
            _pack(fd, f"{draft}.gz")
            os.rename(f"{draft}.gz", draft)
        os.rename(draft, path)


@contextlib.contextmanager
def _source(spec: Spec, found: Mapping[str, Any]) -> Iterator[str | None]:
    if spec.codebase is None:
        if spec.source is not None and not os.path.isdir(spec.source):
            raise InvalidInput(f"The source of this snapshot, {spec.source!r}, is no directory any more.")
        yield spec.source
        return
    from . import uses

    with uses.used(spec.codebase, found.get("codebase")) as version:
        yield version.tree


@contextlib.contextmanager
def _draft(path: str) -> Iterator[tuple[str, int]]:
    """A new file beside the one that it shall become, which nobody sees unless all goes well."""
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:200]}.{os.urandom(4).hex()}")
    try:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise file_error(error.errno or 5, f"{path} cannot be written: {error.strerror}.", path) from error
    try:
        yield draft, fd
    except OSError as error:
        if isinstance(error, AtollError):
            raise
        raise file_error(error.errno or 5, f"{path} cannot be written: {error.strerror}.", path) from error
    finally:
        os.close(fd)
        for name in (draft, f"{draft}.gz"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _pack(fd: int, path: str) -> None:
    import zlib

    packer = zlib.compressobj(6, wbits=31)
    position = 0
    with open(path, "xb") as file:
        os.fchmod(file.fileno(), 0o600)
        while piece := os.pread(fd, _CHUNK, position):
            position += len(piece)
            file.write(packer.compress(piece))
        file.write(packer.flush())
        file.flush()
        os.fsync(file.fileno())


def import_(places: Layout, path: str, name: str | None, limit: int) -> str:
    """Gives the name of the snapshot. Raises InvalidInput, FileError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise file_error(error.errno or 5, f"{path} cannot be read: {error.strerror}.", path) from error
    places.make()
    try:
        answer = apart.run({"do": "import", "home": places.home, "wall": places.wall, "name": name, "limit": limit}, fd)
    finally:
        os.close(fd)
        Layers(places).collect()
    return str(_check(answer, path)["name"])


def _check(answer: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    if "ok" in answer:
        done: Mapping[str, Any] = answer["ok"]
        return done
    error = answer["error"]
    message = str(error["message"])
    if error["code"] == "file_error":
        raise file_error(int(error["errno"]), f"{path}: {message}.", path)
    raise {"invalid_input": InvalidInput, "unsupported": Unsupported}.get(error["code"], SandboxError)(message)
