"""The operation `remove`."""

from __future__ import annotations

import errno
import os
import stat

from .arguments import Arguments
from .jobs import GO_ON, Job, Part, Steps
from .paths import Root, lstat
from .refusal import Refused, file_refusal
from .walking import Walk, open_directory


def remove(root: Root, _job: Job, arguments: Arguments) -> Steps:
    path = arguments.text("path")
    recursive, missing_ok = arguments.flag("recursive"), arguments.flag("missing_ok")
    try:
        directory, name = root.parent(path)
    except Refused as refusal:
        if missing_ok and refusal.number == errno.ENOENT:
            return {}
        raise
    try:
        found = lstat(directory, name)
        if found is None and not missing_ok:
            raise file_refusal(errno.ENOENT, root.absolute(path))
        if found is not None and stat.S_ISDIR(found.st_mode) and not recursive:
            os.rmdir(name, dir_fd=directory)
        elif found is not None:
            yield from remove_entry(directory, name)
    finally:
        os.close(directory)
    return {}


def remove_entry(directory: int, name: bytes) -> Part:
    """A file, a link, or a directory with all that is in it. Raises OSError, Refused."""
    try:
        os.unlink(name, dir_fd=directory)
        return
    except IsADirectoryError:
        pass
    with Walk(open_directory(name, directory)) as walk:
        for step in walk.entries(leaving=True):
            if step is None:
                yield GO_ON
            elif not step.is_directory:
                os.unlink(step.name, dir_fd=step.directory)
            elif step.left:
                os.rmdir(step.name, dir_fd=step.directory)
    os.rmdir(name, dir_fd=directory)
