"""The files of a sandbox as a few plain files, and back: what a snapshot's image holds of them.

Not as directories of the image: a layer of an image gives a meaning to some names, loses holes, attributes and what an
overlay has removed, and would be unpacked by the engine as root. The form is that of `engine.portable`: exact, and read
with distrust. It is done by a process of its own, which mounts things, and whose end takes them away.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from ..engine import disk, jail, kernel
from ..engine.portable import PLACES, Damaged
from ..engine.portable.capture import LAYER_OF_ROOT, Capture, Eyes
from ..engine.portable.exporting import Once
from ..engine.portable.planting import Ground, Planter
from ..engine.portable.stream import Part
from ..engine.settings import FIRST_UID, BirthFailed
from ..engine.steward.originals import RECORDS
from ..errors import SandboxError

_DISK = "disk"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def pack(files: str, into: str, source: str | None) -> int:
    """Write the layers of some files, newest first, as files `0`, `1`, … of a new directory; gives how many.

    `source` is what these are layers of, if they are.

    Raises:
        SandboxError: they cannot be written.
    """
    return int(_apart({"do": "pack", "files": files, "into": into, "source": source})["layers"])


def unpack(blobs: str, files: str, size: int | None, home: str, *, layered: bool) -> int | None:
    """Make a new directory of files of what `pack` wrote; gives whose they are, if not this process's.

    Raises:
        SandboxError: there is not enough room for them, or they were changed.
    """
    request = {"do": "unpack", "blobs": blobs, "files": files, "size": size, "home": home, "layered": layered}
    owner = _apart(request)["owner"]
    return None if owner is None else int(owner)


def _apart(request: dict[str, Any]) -> dict[str, Any]:
    parent = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
    code = f"import sys; sys.path.append({parent!r}); from {__name__} import serve; serve()"
    python = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.run(
        [python, "-I", "-S", "-c", code],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SandboxError("The work on a snapshot was ended from outside; try again.") from None
    if "error" in answer:
        raise SandboxError(f"The files of a snapshot cannot be kept or restored: {answer['error']}.")
    return answer


def serve() -> NoReturn:
    """In that process: do what standard input says, answer, end."""
    answer: dict[str, Any] = {}
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.umask(0)
        request = json.load(sys.stdin)
        answer = _pack(request) if request["do"] == "pack" else _unpack(request)
    except (OSError, Damaged, BirthFailed) as error:
        answer = {"error": getattr(error, "strerror", None) or str(error)}
    except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it
        answer = {"error": repr(error)}
    finally:
        os.write(1, json.dumps(answer).encode())
        os._exit(0)


@contextlib.contextmanager
def _mounted(image: str, beside: str) -> Iterator[str]:
    """Where a disk is mounted, in a mount namespace that this process does not leave again."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    target = f"{beside}/mounted"
    os.mkdir(target, 0o700)
    device, held = disk.attach(image)
    try:
        kernel.mount(device, target, "ext4", jail.DISK_FLAGS, "")
    finally:
        os.close(held)
    yield target
    kernel.umount(target)
    os.rmdir(target)


def _pack(request: dict[str, Any]) -> dict[str, Any]:
    files, into = request["files"], request["into"]
    os.mkdir(into, 0o700)
    image = f"{files}/{_DISK}"
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(_mounted(image, into)) if os.path.exists(image) else files
        uppers = sorted((name for name in os.listdir(top) if name.startswith("upper-")), key=_number, reverse=True)
        for number in range(len(uppers) or 1):
            works = [f"{top}/{name}" for name in uppers[number:]]
            with open(f"{into}/{number}", "wb") as file:
                _capture(file, top, works, request["source"], whole=number == 0)
    _copy_records(files, into)
    return {"layers": len(uppers) or 1}


def _number(upper: str) -> int:
    return int(upper.rpartition("-")[2])


def _capture(file: BinaryIO, top: str, works: list[str], source: str | None, *, whole: bool) -> None:
    capture = Capture(file)
    for place in PLACES:
        layered = place == "work" and bool(works)
        if not layered and not whole:
            continue
        eyes = Eyes(LAYER_OF_ROOT, Once(lambda: _merged([*works, str(source)]))) if layered else Eyes()
        root = os.open(works[0] if layered else f"{top}/{place}", _FOLDER)
        try:
            capture.tree(place, root, eyes)
        finally:
            os.close(root)
    capture.end()


def _merged(lowers: list[str]) -> int:
    """Layers and the source, one over the other, to be read: for files of which an older kernel kept only the name."""
    target = f"{os.path.dirname(lowers[0])}/.merged"
    os.makedirs(target, exist_ok=True)
    options = f"lowerdir={':'.join(map(jail.escape, lowers))},redirect_dir=on,metacopy=on"
    kernel.mount("merged", target, "overlay", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV, options)
    return os.open(target, _FOLDER)


def _unpack(request: dict[str, Any]) -> dict[str, Any]:
    files, blobs, size = request["files"], request["blobs"], request["size"]
    owner = FIRST_UID if os.geteuid() == 0 else None
    os.mkdir(files, 0o700)
    with contextlib.ExitStack() as stack:
        top = files
        if size is not None:
            image = f"{files}/{_DISK}"
            disk.copy_sparse(disk.prepare(f"{request['home']}/docker/.disks", size), image)
            top = stack.enter_context(_mounted(image, blobs))
        names = sorted((name for name in os.listdir(blobs) if name.isdigit()), key=int)
        for age, name in enumerate(names):
            _plant(f"{blobs}/{name}", top, owner, len(names) - 1 - age if request["layered"] else None)
        fd = os.open(top, _FOLDER)
        kernel.syncfs(fd)
        os.close(fd)
    _copy_records(blobs, files)
    return {"owner": owner}


def _copy_records(source: str, target: str) -> None:
    """How the source was, as far as it was written down: a review of what begins with these files needs it."""
    for name in RECORDS:
        with contextlib.suppress(FileNotFoundError):
            disk.copy_sparse(f"{source}/{name}", f"{target}/{name}")


def _plant(blob: str, top: str, owner: int | None, upper: int | None) -> None:
    """Make one layer; `upper` is the number that its workspace gets as a layer over a source."""
    draft = f"{top}/.draft"
    os.mkdir(draft, 0o700)
    root = os.open(draft, _FOLDER)
    planter = Planter(root, Ground(owner, top))
    try:
        with open(blob, "rb") as file:
            planter.plant(_Blob(file))
    finally:
        planter.close()
        os.close(root)
    for place in os.listdir(draft):
        target = f"{top}/{place}" if place != "work" or upper is None else f"{top}/upper-{upper}"
        os.rename(f"{draft}/{place}", target)
        if owner is not None:
            os.chown(target, owner, owner)
    os.rmdir(draft)


class _Blob(Part):
    """A layer that is read from a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise Damaged("it ends too early")
        return data

    def is_over(self) -> bool:
        return not self._file.read(1)
