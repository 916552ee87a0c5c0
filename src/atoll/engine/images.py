"""`image=`: a root file system given as a directory, or as a tar archive that is unpacked once and cached.

An archive is hostile: names, links and sizes in it can be anything. It is unpacked by a child process that
owns nothing, may write nowhere but below the target, and whose mistakes therefore stay there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import InvalidInput, Unsupported
from . import kernel, landlock
from .layout import Layout
from .removal import remove_tree
from .settings import FIRST_UID

if TYPE_CHECKING:
    import tarfile


def unpacked(image: str, home: str) -> str:
    """The directory of an image's root file system.

    Raises:
        InvalidInput: there is no such image, or it is no root file system.
        Unsupported: it is an archive and this host cannot confine the unpacking.
    """
    path = os.path.realpath(image)
    if os.path.isdir(path):
        root = path
    elif os.path.isfile(path):
        root = _cached(path, home)
    else:
        raise InvalidInput(
            f"image={image!r} is neither a directory nor a tar archive on this machine.",
            hint='For an image of a container engine say driver="docker".',
        )
    if not any(os.path.isdir(f"{root}/{name}") for name in ("usr", "bin")):
        raise InvalidInput(f"image={image!r} holds no root file system: there is neither /usr nor /bin in it.")
    return root


def _cached(path: str, home: str) -> str:
    import hashlib

    status = os.stat(path)
    key = f"{path}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}".encode(errors="surrogateescape")
    places = Layout(home)
    places.make()
    target = f"{places.images}/{hashlib.sha256(key).hexdigest()[:32]}"
    if os.path.isdir(target):
        return target
    draft = f"{target}.{os.getpid()}"
    os.makedirs(draft, mode=0o755)
    os.chmod(draft, 0o755)  # noqa: S103 - every sandbox reads it, whatever the caller's umask
    try:
        _unpack(path, draft)
        try:
            os.rename(draft, target)
        except OSError:
            if not os.path.isdir(target):
                raise
    finally:
        remove_tree(draft)
    return target


def _unpack(archive: str, target: str) -> None:
    # All of them now: the unpacker may not be able to read this Python's library.
    import bz2  # noqa: F401
    import gzip  # noqa: F401
    import lzma  # noqa: F401
    import tarfile
    import zlib  # noqa: F401

    abi = landlock.version()
    if abi == 0:
        raise Unsupported(
            "This kernel has no Landlock, so an archive cannot be unpacked safely.",
            hint="Unpack it yourself and give the directory as image=.",
        )
    if os.geteuid() == 0:
        os.chown(target, FIRST_UID, FIRST_UID)
    reader, writer = os.pipe()
    with open(archive, "rb") as file:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            try:
                # By working directory: an id that owns nothing cannot walk the path to it.
                os.chdir(target)
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(FIRST_UID, FIRST_UID, FIRST_UID)
                    os.setresuid(FIRST_UID, FIRST_UID, FIRST_UID)
                kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
                landlock.restrict(abi, (".",))
                with tarfile.open(fileobj=file, mode="r:*") as tar:
                    _extract(tar)
                os._exit(0)
            except BaseException as error:  # noqa: BLE001 - the parent tells it
                os.write(writer, str(error).encode()[:2048])
            finally:
                os._exit(1)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = " ".join(pipe.read().decode(errors="replace").split())
    if os.waitpid(pid, 0)[1] != 0:
        raise InvalidInput(f"The image archive {archive} cannot be unpacked: {said or 'the unpacker died'}.")


def _extract(tar: tarfile.TarFile) -> None:
    """Devices are left out (nobody could open them), owners are dropped, directories stay ours to write.

    Python's own filters came with 3.11.4 and refuse links that an image needs; Landlock confines this to the target.
    """
    tar.extraction_filter = lambda member, _path: member
    for member in tar:
        if member.isdev():
            continue
        member.name = member.name.lstrip("/")
        if ".." in member.name.split("/"):
            raise ValueError(f"{member.name!r} points outside the archive")
        member.mode = member.mode & 0o777 | (0o700 if member.isdir() else 0)
        tar.extract(member, ".")
