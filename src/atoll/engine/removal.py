"""Removing a tree that hostile code made: any depth, any names, any modes, nothing followed.

A directory's subdirectories are first moved up beside it, so no path is ever longer than two names
and neither recursion nor PATH_MAX is a limit.
"""

from __future__ import annotations

import contextlib
import os
import stat

# Behind the name of a tree, what a directory of it is called beside it.
_LIFTED = ".removing."
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a directory and all in it, with what somebody has left who was killed over it.

    Does nothing where there is none; somebody else may be at it as well.

    Raises:
        OSError: something in it cannot be removed.
    """
    parent, name = os.path.split(path)
    parent_fd = os.open(parent, _DIRECTORY)
    try:
        pending = [*(each for each in os.listdir(parent_fd) if each.startswith(f"{name}{_LIFTED}")), name]
        while pending:
            current = pending.pop()
            for child in _empty(parent_fd, current):
                lifted = f"{name}{_LIFTED}{os.urandom(8).hex()}"
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{current}/{child}", lifted, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
                    pending.append(lifted)
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(current, dir_fd=parent_fd)
    finally:
        os.close(parent_fd)


def _empty(parent_fd: int, name: str) -> list[str]:
    """Unlink the files of a directory and give the names of its non-empty subdirectories."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
    except FileNotFoundError:
        return []
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent_fd)
        fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
    try:
        if os.geteuid() != 0:
            os.fchmod(fd, stat.S_IRWXU)
        left = []
        listed = []
        with contextlib.suppress(FileNotFoundError), os.scandir(fd) as entries:
            listed += [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_directory in listed:
            with contextlib.suppress(FileNotFoundError):
                if not is_directory:
                    os.unlink(child, dir_fd=fd)
                elif not _removed(child, fd):
                    left.append(child)
        return left
    finally:
        os.close(fd)


def _removed(name: str, directory: int) -> bool:
    """Whether a directory was empty and is gone; else it is made ours to empty."""
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError:
        if os.geteuid() != 0:
            os.chmod(name, stat.S_IRWXU, dir_fd=directory)
        return False
    return True
