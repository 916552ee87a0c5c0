"""The operations `move` and `copy`."""

from __future__ import annotations

import errno
import os
import stat
from typing import List, NamedTuple, Tuple

from .arguments import Arguments
from .jobs import GO_ON, Job, Part, Steps
from .paths import Root, lstat, rename
from .refusal import Refused, file_refusal
from .removal import remove_entry
from .walking import Step, Walk, open_directory
from .writing import NewFile, check_replaceable

_CHUNK = 1 << 20
_NOT_HERE = frozenset((errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF))
"""How a file system says that it cannot copy by itself, or knows nothing of holes."""


class Place(NamedTuple):
    """A name in an open directory. `path` is how messages call it."""

    directory: int
    name: bytes
    path: str


def move(root: Root, _job: Job, arguments: Arguments) -> Steps:
    """Rename; between file systems copy and remove."""
    overwrite = arguments.flag("overwrite")
    source_path, target_path = arguments.text("source"), arguments.text("target")
    source = Place(*root.parent(source_path), root.absolute(source_path))
    try:
        target = Place(*root.parent(target_path), root.absolute(target_path))
        try:
            yield from _move(source, target, overwrite)
        finally:
            os.close(target.directory)
    finally:
        os.close(source.directory)
    return {}


def _move(source: Place, target: Place, overwrite: bool) -> Part:
    _status(source)
    try:
        rename(source.directory, source.name, target.directory, target.name, overwrite)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise file_refusal(error.errno or errno.EIO, target.path) from error
    if overwrite:
        _make_way(target)
    yield from _copy(source, target, overwrite=False)
    directory = stat.S_ISDIR(_status(source).st_mode)
    try:
        yield from remove_entry(source.directory, source.name)
    except (OSError, Refused):
        # Of a directory some may be gone by now, and the copy has it; a file is still there.
        if not directory:
            os.unlink(target.name, dir_fd=target.directory)
        raise


def _make_way(target: Place) -> None:
    """As rename does: a file or an empty directory gives way."""
    found = lstat(target.directory, target.name)
    if found is not None and stat.S_ISDIR(found.st_mode):
        os.rmdir(target.name, dir_fd=target.directory)
    elif found is not None:
        os.unlink(target.name, dir_fd=target.directory)


def copy(root: Root, _job: Job, arguments: Arguments) -> Steps:
    """A link as the source is followed; links below it are copied as links."""
    overwrite = arguments.flag("overwrite")
    source_path, target_path = arguments.text("source"), arguments.text("target")
    source = Place(*root.parent_of_target(source_path), root.absolute(source_path))
    try:
        target = Place(*root.parent(target_path), root.absolute(target_path))
        try:
            yield from _copy(source, target, overwrite)
        finally:
            os.close(target.directory)
    finally:
        os.close(source.directory)
    return {}


def _copy(source: Place, target: Place, overwrite: bool) -> Part:
    found = _status(source)
    there = lstat(target.directory, target.name)
    if there is not None and not overwrite:
        raise file_refusal(errno.EEXIST, target.path)
    if there is not None and os.path.samestat(found, there):
        raise file_refusal(errno.EINVAL, target.path, "Source and target are the same file")
    if stat.S_ISDIR(found.st_mode):
        _check_outside(found, target)
        yield from _copy_tree(source, target, found)
    else:
        yield from _copy_single(source, target, found, overwrite)


def _status(place: Place) -> os.stat_result:
    found = lstat(place.directory, place.name)
    if found is None:
        raise file_refusal(errno.ENOENT, place.path)
    return found


def _check_outside(source: os.stat_result, target: Place) -> None:
    """A tree copied into itself would never end."""
    above = os.dup(target.directory)
    try:
        while True:
            here = os.fstat(above)
            if os.path.samestat(here, source):
                raise file_refusal(errno.EINVAL, target.path, "The target lies inside the source")
            parent = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
            os.close(above)
            above = parent
            if os.path.samestat(os.fstat(above), here):
                return
    finally:
        os.close(above)


def _copy_single(source: Place, target: Place, found: os.stat_result, overwrite: bool) -> Part:
    if stat.S_ISLNK(found.st_mode):
        link = os.readlink(source.name, dir_fd=source.directory)
        if overwrite:
            _make_way(target)
        os.symlink(link, target.name, dir_fd=target.directory)
    elif stat.S_ISREG(found.st_mode):
        yield from _copy_file(source, target, overwrite)
    else:
        raise file_refusal(errno.EINVAL, source.path, "Not a regular file")


def _copy_file(source: Place, target: Place, overwrite: bool) -> Part:
    check_replaceable(target.directory, target.name, target.path, links=True)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(source.name, flags, dir_fd=source.directory)
    except OSError as error:
        raise file_refusal(error.errno or errno.EIO, source.path) from error
    try:
        found = os.fstat(fd)
        with NewFile(target.directory, target.name) as new:
            yield from copy_content(fd, new.fd, found.st_size)
            os.utime(new.fd, ns=(found.st_atime_ns, found.st_mtime_ns))
            new.replace(stat.S_IMODE(found.st_mode), overwrite)
    finally:
        os.close(fd)


def copy_content(source: int, target: int, size: int) -> Part:
    """All of a file, its holes as holes. Files of /proc say that they are empty and are read to their end."""
    position = 0
    while position < size:
        start, end = _next_data(source, position, size)
        while start < end:
            copied = _copy_range(source, target, start, min(end - start, _CHUNK))
            if not copied:
                return
            start += copied
            yield GO_ON
        position = end
    if size:
        os.ftruncate(target, size)
    while not size and _copy_range(source, target, position, _CHUNK):
        position = os.fstat(target).st_size
        yield GO_ON


def _next_data(fd: int, position: int, size: int) -> Tuple[int, int]:
    """Where the next stretch of content begins and ends; an empty one at the end of the file."""
    try:
        start = os.lseek(fd, position, os.SEEK_DATA)
        return start, min(os.lseek(fd, start, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        if error.errno not in _NOT_HERE:
            raise
    return position, size


def _copy_range(source: int, target: int, position: int, count: int) -> int:
    try:
        copied = os.copy_file_range(source, target, count, position, position)
        if copied:
            return copied
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    return os.pwrite(target, os.pread(source, count, position), position)


def _copy_tree(source: Place, target: Place, found: os.stat_result) -> Part:
    targets: List[int] = [_open_target(target)]
    try:
        with Walk(open_directory(source.name, source.directory)) as walk:
            for step in walk.entries(leaving=True):
                if step is None:
                    yield GO_ON
                else:
                    yield from _copy_step(step, targets, source.path, target.path)
        _finish_directory(targets[0], found)
    finally:
        for fd in targets:
            os.close(fd)


def _copy_step(step: Step, targets: List[int], source_path: str, target_path: str) -> Part:
    source = Place(step.directory, step.name, source_path + "/" + step.path)
    target = Place(targets[-1], step.name, target_path + "/" + step.path)
    if step.left:
        fd = targets.pop()
        try:
            _finish_directory(fd, step.stat)
        finally:
            os.close(fd)
    elif step.is_directory:
        targets.append(_open_target(target))
    else:
        yield from _copy_single(source, target, step.stat, overwrite=True)


def _open_target(target: Place) -> int:
    """Make a directory, or use the one that is there."""
    try:
        os.mkdir(target.name, 0o700, dir_fd=target.directory)
    except FileExistsError:
        pass
    try:
        return open_directory(target.name, target.directory)
    except OSError as error:
        raise file_refusal(error.errno or errno.EIO, target.path) from error


def _finish_directory(fd: int, found: os.stat_result) -> None:
    """Permissions come last: a directory without write permission could not be filled."""
    os.fchmod(fd, stat.S_IMODE(found.st_mode))
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
