"""Disk limits that the kernel holds: an ext4 file system of the right size in a file, on a loop device.

Only root can mount one. An empty file system is made once for each size and copied, holes and all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from .layers import SMALLEST, Layers, Stack, left
from .layout import Layout
from .settings import BirthFailed

_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _LOOP_GET_STATUS = 0x4C82, 0x4C0A, 0x4C05
_AUTOCLEAR = 4
_SHUTDOWN, _NO_FLUSH = 0x8004587D, 2
_LOOP_MAJOR = 7
_CONFIG_SIZE, _STATUS_SIZE = 304, 232
_FLAGS_OFFSET = 8 + 52
LARGEST = 8 << 40


def available() -> bool:
    """Whether this process may make loop devices and file systems."""
    return os.access("/dev/loop-control", os.R_OK | os.W_OK) and _tool() is not None


def _tool() -> str | None:
    return next((p for p in ("/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4") if os.access(p, os.X_OK)), None)


def prepare(directory: str, size: int) -> str:
    """The path of an empty file system of `size` bytes.

    Raises:
        BirthFailed: mkfs.ext4 is missing or refuses the size.
    """
    if not SMALLEST <= size <= LARGEST:
        raise BirthFailed(f"A disk limit of {size} bytes cannot be made; give 1M to 8T.", "invalid_input")
    # Not makedirs: a state directory that was removed stays removed.
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, mode=0o700)
    path = f"{directory}/{size}.ext4"
    if not os.path.exists(path):
        _make(path, size)
    return path


def _make(path: str, size: int) -> None:
    import subprocess

    tool = _tool()
    if tool is None:
        raise BirthFailed("A disk limit needs `mkfs.ext4`; install the package e2fsprogs.", "unsupported")
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "wb") as file:
            file.truncate(size)
        # No journal, nothing for growing and no spare superblocks: the disk ends with the sandbox, and each is a
        # copy of this one. No reserved blocks: the limit is the user's.
        features = "^has_journal,^resize_inode,sparse_super2"
        extended = "lazy_itable_init=1,nodiscard,packed_meta_blocks=1,num_backup_sb=0"
        options = ["-q", "-F", "-m", "0", "-O", features, "-E", extended]
        done = subprocess.run([tool, *options, draft], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BirthFailed(f"A disk of {size} bytes could not be made: {done.stderr.strip()}")
        os.rename(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def of_sandbox(places: Layout, sandbox: str, stack: Stack, quota: int) -> tuple[str, int]:
    """The disk in a sandbox's box, made unless it is there: its device, and a descriptor to hold until it is mounted.

    With the layers below it, it holds no more than `quota` bytes.

    Raises:
        BirthFailed: mkfs.ext4 is missing or refuses the size, or the layers leave no room.
        OSError: there are no loop devices.
    """
    image = f"{places.box(sandbox)}/{stack.top}"
    if not os.path.exists(image):
        size = left(quota, Layers(places).taken(stack))
        copy_sparse(prepare(f"{places.top}/disks", size), image)
    else:
        await_release(image)
    return attach(image)


def copy_sparse(source: str, target: str) -> None:
    """Copy a file and its holes. The copy is there when it is whole; what was there is replaced."""
    draft = f"{target}.new"
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    writer = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        copy_content(reader, writer)
    finally:
        os.close(reader)
        os.close(writer)
    os.rename(draft, target)


def copy_content(reader: int, writer: int) -> None:
    """Copy all that a file has into an empty one, holes as holes. A file that shrinks meanwhile ends in one."""
    os.ftruncate(writer, os.fstat(reader).st_size)
    for start, end in extents(reader):
        position = start
        while position < end:
            copied = os.copy_file_range(reader, writer, end - position, position, position)
            if copied == 0:
                return
            position += copied


def extents(reader: int) -> Iterator[tuple[int, int]]:
    """From where to where a file is no hole."""
    size, position = os.fstat(reader).st_size, 0
    while position < size:
        try:
            start = os.lseek(reader, position, os.SEEK_DATA)
        except OSError:
            return
        position = os.lseek(reader, start, os.SEEK_HOLE)
        yield start, position


def shut_down(path: str) -> None:
    """Have the file system that `path` is on refuse everything from now on, and forget what is not written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # the first process is dead, and its mounts with it
    try:
        shut_down_at(fd)
    finally:
        os.close(fd)


def shut_down_at(fd: int) -> None:
    """The same, for the file system of a descriptor."""
    # A mistake in the path would shut down the host's own disk.
    if os.major(os.fstat(fd).st_dev) == _LOOP_MAJOR:
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_FLUSH))


def await_release(path: str, seconds: float = 10.0) -> None:
    """Wait until no loop device is on a file any more: two at once would ruin what is on it.

    Raises:
        OSError: one still is.
    """
    until = time.monotonic() + seconds
    while device_of(path):
        if time.monotonic() > until:
            raise OSError(f"the disk of this sandbox is still in use after {seconds:g} s")
        time.sleep(0.01)


class Backing(NamedTuple):
    """The file that a loop device is on."""

    device: int
    inode: int


def _backing_of(fd: int) -> Backing | None:
    """The file that an open loop device is on."""
    try:
        told = fcntl.ioctl(fd, _LOOP_GET_STATUS, bytes(_STATUS_SIZE))
    except OSError:
        return None
    return Backing(*struct.unpack_from("QQ", told))


def _backing(loop: str) -> Backing | None:
    try:
        fd = os.open(f"/dev/{loop}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _backing_of(fd)
    finally:
        os.close(fd)


def _name_of_file(loop: str) -> str:
    """What the file is called that a loop device is on; empty for none.

    Its path is as the mount namespace knew it in which the device was made, which may be gone: not the path of here.
    """
    try:
        with open(f"/sys/block/{loop}/loop/backing_file", encoding="utf-8", errors="surrogateescape") as file:
            return os.path.basename(file.read().rstrip("\n"))
    except OSError:
        return ""


@contextlib.contextmanager
def shared(path: str) -> Iterator[str]:
    """The loop device on a file that several mount: the one that is there, else a new one, until it is mounted.

    Two devices on one file would not see each other's writes. Mounts of one device share one file system.

    Raises:
        OSError: there are no loop devices.
    """
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    device = -1
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        name, device = _attached(path) or attach(path)
        yield name
    finally:
        if device >= 0:
            os.close(device)
        os.close(directory)


def _attached(path: str) -> tuple[str, int] | None:
    """The loop device that is on a file, held so that it stays."""
    name = device_of(path)
    if not name:
        return None
    device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    # It may have gone, and come back for somebody else, before it was held.
    if _backing_of(device) == _identity(path):
        return name, device
    os.close(device)
    return None


def devices() -> Iterator[tuple[str, Backing]]:
    """Every loop device that is on a file, with that file."""
    for name in os.listdir("/sys/block"):
        if name.startswith("loop") and _name_of_file(name) and (backing := _backing(name)):
            yield f"/dev/{name}", backing


def _identity(path: str) -> Backing | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Backing(found.st_dev, found.st_ino)


def device_of(path: str) -> str:
    """The loop device that is on a file; empty if none is."""
    wanted = _identity(path)
    if wanted is None:
        return ""
    hint = f"{path}.loop"
    with contextlib.suppress(OSError):
        # Where it was found last: there are as many devices as sandboxes.
        last = os.readlink(hint)
        if _backing(last) == wanted:
            return f"/dev/{last}"
    called = os.path.basename(os.path.realpath(path))
    for name in os.listdir("/sys/block"):
        if name.startswith("loop") and _name_of_file(name) == called and _backing(name) == wanted:
            with contextlib.suppress(OSError):
                draft = f"{hint}.{os.getpid()}"
                os.symlink(name, draft)
                os.rename(draft, hint)
            return f"/dev/{name}"
    return ""


def attach(path: str) -> tuple[str, int]:
    """A loop device on a file: its name, and a descriptor to hold until it is mounted.

    Raises:
        OSError: there are no loop devices.
    """
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Asking for a free number and taking it are two steps; in a rush everybody would be told the same one.
        fcntl.flock(control, fcntl.LOCK_EX)
        for _ in range(64):
            name = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            config = bytearray(_CONFIG_SIZE)
            struct.pack_into("II", config, 0, backing, 0)
            # lo_flags of the embedded loop_info64; the kernel lets go of the file with the last user.
            struct.pack_into("I", config, _FLAGS_OFFSET, _AUTOCLEAR)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, bytes(config))
            except OSError:
                # Somebody else was quicker with this number.
                os.close(device)
                continue
            return name, device
    finally:
        os.close(control)
        os.close(backing)
    raise OSError("no free loop device")
