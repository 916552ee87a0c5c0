"""The operations on single files and directories: `stat`, `list`, `read`, `write`, `mkdir`."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import Any, Dict, Generator, List, Optional

from ..wire.frames import DATA_SIZE
from . import walking
from .arguments import Arguments
from .descriptors import write_all
from .jobs import GO_ON, WAIT, Job, Steps
from .paths import Root
from .refusal import file_refusal
from .writing import NewFile, Spool, check_replaceable

_BATCH = 256


def info(path: str, found: os.stat_result, target: Optional[str] = None) -> Dict[str, Any]:
    """A file as an answer describes it."""
    return {
        "path": path,
        "name": posixpath.basename(path) or "/",
        "type": file_type(found.st_mode),
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "modified": found.st_mtime,
        "target": target,
    }


def file_type(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def stat_path(root: Root, arguments: Arguments) -> Dict[str, Any]:
    path = arguments.text("path")
    fd = root.open(path, os.O_PATH, follow=arguments.flag("follow", default=True))
    try:
        found = os.fstat(fd)
        target = os.readlink(b"", dir_fd=fd).decode("utf-8", "surrogateescape") if stat.S_ISLNK(found.st_mode) else None
    finally:
        os.close(fd)
    return {"info": info(root.absolute(path), found, target)}


def list_directory(root: Root, job: Job, arguments: Arguments) -> Steps:
    """Entries in the order of the file system; directories before what is in them."""
    path = arguments.text("path")
    recursive = arguments.flag("recursive")
    fd = root.open(path, os.O_RDONLY | os.O_DIRECTORY)
    base = root.absolute(path)
    batch: List[Dict[str, Any]] = []
    with walking.Walk(fd, forgiving=True, pruning=True) as walk:
        for step in walk.entries(recursive=recursive):
            if step is None:
                yield GO_ON
                continue
            target = step.link_target() if step.is_link else None
            batch.append(info(posixpath.join(base, step.path), step.stat, target))
            if len(batch) >= _BATCH:
                yield from job.tell("entries", batch)
                batch = []
        if batch:
            yield from job.tell("entries", batch)
        return {"skipped": walk.skipped}


def read_file(root: Root, job: Job, arguments: Arguments) -> Steps:
    path = arguments.text("path")
    offset, left = arguments.count("offset", 0), arguments.count("size")
    fd = open_regular(root, path)
    sent = 0
    try:
        os.lseek(fd, offset or 0, os.SEEK_SET)
        while left is None or sent < left:
            room = min(job.channel.room, DATA_SIZE, DATA_SIZE if left is None else left - sent)
            if room <= 0:
                yield WAIT
                continue
            data = os.read(fd, room)
            if not data:
                break
            yield from job.send(data)
            sent += len(data)
            yield GO_ON
    finally:
        os.close(fd)
    return {"size": sent}


def open_regular(root: Root, path: str) -> int:
    """Open for reading what can be read to an end: no pipe, socket or device, on which one could wait for ever."""
    fd = root.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise file_refusal(errno.EISDIR, root.absolute(path))
    raise file_refusal(errno.EINVAL, root.absolute(path), "Not a regular file")


def write_file(root: Root, job: Job, arguments: Arguments) -> Steps:
    path, mode = arguments.text("path"), arguments.file_mode("mode")
    if arguments.flag("parents"):
        root.make_directories(posixpath.dirname(path.rstrip("/")) or ".")
    if arguments.flag("append"):
        return (yield from _append(root, job, path, mode))
    directory, name = root.parent_of_target(path)
    try:
        replaced = check_replaceable(directory, name, root.absolute(path))
        if replaced is not None and not arguments.flag("atomic"):
            return (yield from _overwrite(root, job, path, mode, directory))
        with NewFile(directory, name) as new:
            yield from _fill(job, new.fd)
            size = os.fstat(new.fd).st_size
            new.replace(mode if mode is not None else replaced)
    finally:
        os.close(directory)
    return {"size": size}


def _overwrite(root: Root, job: Job, path: str, mode: Optional[int], directory: int) -> Steps:
    """Write to a file that is there, as `open(path, "w")` does. Not before all of the input has come."""
    fd = _open_to_write(root, path, 0)
    try:
        with Spool(root, directory) as spool:
            while True:
                data = yield from job.take()
                if not data:
                    break
                spool.add(data)
                yield GO_ON
            if mode is not None:
                os.fchmod(fd, mode)
            _reserve(fd, spool.size)
            for data in spool.content():
                write_all(fd, data)
                yield GO_ON
            os.ftruncate(fd, spool.size)
    finally:
        os.close(fd)
    return {"size": spool.size}


def _reserve(fd: int, size: int) -> None:
    """Have room on the disk: the old content is not lost to a new one for which there is none. Raises OSError."""
    before = os.fstat(fd).st_size
    try:
        if size:
            os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            os.ftruncate(fd, before)
            raise


def _open_to_write(root: Root, path: str, flags: int) -> int:
    """Whatever has taken the place of the file that was there: only files are written to, and none of /proc's, which
    the guest may write to for its own sake."""
    fd = root.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | flags, 0o666)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_dev != os.stat("/proc").st_dev:
        return fd
    os.close(fd)
    raise file_refusal(errno.EINVAL, root.absolute(path), "Not a regular file")


def _append(root: Root, job: Job, path: str, mode: Optional[int]) -> Steps:
    directory, name = root.parent_of_target(path)
    try:
        check_replaceable(directory, name, root.absolute(path))
    finally:
        os.close(directory)
    fd = _open_to_write(root, path, os.O_APPEND | os.O_CREAT)
    try:
        if mode is not None:
            os.fchmod(fd, mode)
        written = yield from _fill(job, fd)
    finally:
        os.close(fd)
    return {"size": written}


def _fill(job: Job, fd: int) -> Generator[int, None, int]:
    """Write all of the input; how much it was."""
    total = 0
    while True:
        data = yield from job.take()
        if not data:
            return total
        write_all(fd, data)
        total += len(data)
        yield GO_ON


def make_directory(root: Root, arguments: Arguments) -> Dict[str, Any]:
    path, mode = arguments.text("path"), arguments.file_mode("mode")
    exist_ok = arguments.flag("exist_ok")
    directory_mode = 0o777 if mode is None else mode
    if arguments.flag("parents"):
        root.make_directories(posixpath.dirname(path.rstrip("/")) or ".")
    directory, name = root.parent(path)
    try:
        os.mkdir(name, directory_mode, dir_fd=directory)
        if mode is not None:
            os.chmod(name, mode, dir_fd=directory)
    except FileExistsError:
        if not (exist_ok and stat.S_ISDIR(root.stat(path).st_mode)):
            raise file_refusal(errno.EEXIST, root.absolute(path)) from None
    finally:
        os.close(directory)
    return {}
