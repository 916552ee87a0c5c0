"""A tree seen with other owners, by an id-mapped mount (Linux 5.12), without touching the tree.

Root's sandboxes run as an id of their own, which could change nothing in a tree of root's or of a person's: an
id-mapped mount shows the tree's owner as that id.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

from . import kernel


def namespace(users: Mapping[int, int], groups: Mapping[int, int]) -> int:
    """A descriptor of a user namespace that shows each id as another; nobody needs to live in it."""
    reader, writer = os.pipe()
    pid = kernel.clone(kernel.CLONE_NEWUSER)
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    try:
        for name, ids in (("uid_map", users), ("gid_map", groups)):
            with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                file.write("".join(f"{inside} {outside} 1\n" for inside, outside in ids.items()))
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writer)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def mapped_source(path: str, uid: int) -> int:
    """A detached mount of `path` whose owner appears as `uid`.

    Raises:
        OSError: there is no such directory, or its file system cannot be id-mapped.
    """
    status = os.stat(path)
    userns = namespace({status.st_uid: uid}, {status.st_gid: uid})
    try:
        tree = kernel.open_tree(path, recursive=False)
        try:
            kernel.mount_setattr(tree, kernel.MOUNT_ATTR_IDMAP, recursive=False, userns=userns)
        except OSError as error:
            os.close(tree)
            raise OSError(error.errno, f"the file system of {path} cannot be mapped to the sandbox's user") from error
        return tree
    finally:
        os.close(userns)


def map_mount(tree: int, ids: Mapping[int, int]) -> None:
    """Show ids, of users and of groups alike, as others in a detached mount that nobody has seen yet.

    Raises:
        OSError: its file system cannot be id-mapped.
    """
    with contextlib.closing(Mapper()) as mapper:
        mapper.map_mount(tree, ids)


class Mapper:
    """`map_mount` for many mounts: each way to show ids takes a process to find it, so it is kept. To be closed."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], ...], int] = {}

    def map_mount(self, tree: int, ids: Mapping[int, int]) -> None:
        key = tuple(sorted(ids.items()))
        if key not in self._known:
            self._known[key] = namespace(ids, ids)
        kernel.mount_setattr(tree, kernel.MOUNT_ATTR_IDMAP, recursive=False, userns=self._known[key])

    def close(self) -> None:
        for fd in self._known.values():
            os.close(fd)
        self._known.clear()
