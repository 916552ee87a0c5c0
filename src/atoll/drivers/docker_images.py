"""What a container's root is: the default image, an image of the engine, or a directory or archive of this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from ..engine import roottree
from ..errors import CreateFailed, InvalidInput, WallUnavailable
from .docker_engine import Engine, Refused

DEFAULT, IMPORTED = "atoll-default", "atoll-image"
_IMPORT_SECONDS = 600
_LARGEST_TEXT = 1 << 16


class Image(NamedTuple):
    """An image that the engine has.

    Args:
        own: whether it is made by atoll, with the guest and its Python in it.
    """

    reference: str
    id: str
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    checks_health: bool = False
    own: bool = False


def find(engine: Engine, image: str | None, home: str) -> Image:
    """The image that `Spec.image` means; what can be made of this machine is made when it is not there.

    Raises:
        WallUnavailable: the engine has no such image, and it is not pulled.
        InvalidInput: there is no such directory or archive.
        CreateFailed: it cannot be imported.
        Unreachable, Refused: the engine does not answer, or not well.
    """
    if image is None:
        return _default(engine, home)
    if image.startswith("/"):
        return _of_path(engine, image, home)
    found = _inspect(engine, image)
    if found is None:
        raise WallUnavailable(f"The container engine has no image {image!r}.", hint=f"Run: docker pull {image}")
    return found


def has_default(engine: Engine) -> bool:
    """Whether the image that is made of this machine is there. Raises as `find` does."""
    return _inspect(engine, f"{DEFAULT}:{roottree.tag()}") is not None


def _inspect(engine: Engine, reference: str) -> Image | None:
    from urllib.parse import quote

    try:
        found = engine.get(f"/images/{quote(reference, safe='/:@')}/json")
    except Refused as error:
        if error.status == 404:
            return None
        raise
    config = found.get("Config") or {}
    env, volumes = tuple(config.get("Env") or ()), tuple(config.get("Volumes") or ())
    return Image(reference, found["Id"], env, volumes, checks_health=bool(config.get("Healthcheck")))


def _default(engine: Engine, home: str) -> Image:
    reference = f"{DEFAULT}:{roottree.tag()}"
    found = _inspect(engine, reference)
    if found is None:
        with _alone(home):
            found = _inspect(engine, reference)
            if found is None:
                _import(engine, reference, roottree.build(home))
                found = _inspect(engine, reference)
    if found is None:
        raise CreateFailed("The engine has lost the image that was just made.")
    return found._replace(own=True)


def _of_path(engine: Engine, path: str, home: str) -> Image:
    if not os.path.exists(path):
        raise InvalidInput(f"image={path!r} is neither a directory nor a tar archive on this machine.")
    if os.path.isdir(path) and not any(os.path.isdir(f"{path}/{name}") for name in ("usr", "bin")):
        raise InvalidInput(f"image={path!r} holds no root file system: there is neither /usr nor /bin in it.")
    reference = f"{IMPORTED}:{_fingerprint(path)}"
    found = _inspect(engine, reference)
    if found is None:
        with _alone(home):
            _import(engine, reference, path)
        found = _inspect(engine, reference)
    if found is None:
        raise CreateFailed("The engine has lost the image that was just made.")
    return found


def _fingerprint(path: str) -> str:
    """Of a file, or of all in a directory, by what changes when they do."""
    import hashlib

    seen = hashlib.sha256()
    for place in [path, *_all_in(path)]:
        status = os.lstat(place)
        told = (place, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
        seen.update(repr(told).encode(errors="surrogateescape"))
    return seen.hexdigest()[:32]


def _all_in(path: str) -> Iterator[str]:
    for directory, directories, names in os.walk(path):
        yield from (os.path.join(directory, name) for name in sorted(directories) + sorted(names))


def _import(engine: Engine, reference: str, path: str) -> None:
    """Have the engine make an image of a directory or an archive.

    Raises:
        CreateFailed: it does not take it.
    """
    from docker.errors import DockerException

    repository, _, tag = reference.partition(":")
    try:
        with sdk(engine) as client, _as_tar(path) as stream:
            said = str(client.import_image_from_stream(stream, repository=repository, tag=tag))
            if made := re.search("(sha256:)?[0-9a-f]{64}", said):
                client.tag(made[0], repository, tag)  # Podman imports without
    except (DockerException, OSError) as error:
        raise CreateFailed(f"The engine cannot make an image of {path}: {error}.") from error
    if '"error"' in said:
        raise CreateFailed(f"The engine cannot make an image of {path}: {said}")


def passwd(engine: Engine, image: Image, home: str) -> str:
    """The users of an image, asked for once; empty where it tells none.

    Raises Refused, Unreachable.
    """
    path = f"{home}/docker/.passwd/{image.id.rpartition(':')[2]}"
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        return file.read()
    text = "" if image.own else _read(engine, image.id, "/etc/passwd")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(draft, path)
    return text


def _read(engine: Engine, image: str, path: str) -> str:
    """A small text file of an image, which may be hostile; empty for none."""
    import io
    import tarfile

    from docker.errors import DockerException

    with sdk(engine) as client:
        container = client.create_container(image, ["/"])["Id"]
        try:
            stream, _ = client.get_archive(container, path)
            data = b"".join(piece for piece, _ in zip(stream, range(16), strict=False))
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                member = tar.next()
                file = tar.extractfile(member) if member is not None and member.isreg() else None
                return file.read(_LARGEST_TEXT).decode(errors="replace") if file is not None else ""
        except (DockerException, tarfile.TarError):
            return ""
        finally:
            client.remove_container(container, force=True, v=True)


@contextlib.contextmanager
def sdk(engine: Engine) -> Iterator[Any]:
    """The package's client of an engine. Slow to load, so only for what is rare.

    Raises docker.errors.DockerException.
    """
    from docker import APIClient

    client = APIClient(base_url=f"unix://{engine.path}", version="auto", timeout=_IMPORT_SECONDS)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _as_tar(path: str) -> Iterator[IO[bytes]]:
    """An archive as it is, or a directory as one, everything root's."""
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            yield file
        return
    reader, writer = os.pipe()
    thread = threading.Thread(target=_pack, args=(path, writer), daemon=True)
    thread.start()
    try:
        with os.fdopen(reader, "rb") as stream:
            yield stream
    finally:
        thread.join()


def _pack(path: str, writer: int) -> None:
    import tarfile

    def rooted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return None if member.isdev() else member

    with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as stream:  # noqa: SIM117 - its end breaks it
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for name in sorted(os.listdir(path)):
                tar.add(f"{path}/{name}", name, filter=rooted)


@contextlib.contextmanager
def _alone(home: str) -> Iterator[None]:
    """Of many who want to import, one does at a time."""
    os.makedirs(f"{home}/docker", mode=0o700, exist_ok=True)
    lock = os.open(f"{home}/docker/.importing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
