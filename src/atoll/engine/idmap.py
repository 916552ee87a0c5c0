"""A source tree seen with other owners: the files of whoever owns the tree appear as the sandbox user's.

Root's sandboxes run as an id of their own, which could change nothing in a tree of root's or of a person's.
An id-mapped mount (Linux 5.12) shows the tree's owner as that id, without touching the tree.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from . import kernel


def _namespace(uids: Mapping[int, int], gids: Mapping[int, int]) -> int:
    """A descriptor of a user namespace that maps ids to others; nobody needs to live in it."""
    reader, writer = os.pipe()
    pid = kernel.clone(kernel.CLONE_NEWUSER)
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    try:
        for name, ids in (("uid_map", uids), ("gid_map", gids)):
            with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                file.write("\n".join(f"{inside} {shown} 1" for inside, shown in ids.items()))
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
    return _mapped(path, {status.st_uid: uid}, {status.st_gid: uid})


def mapped(path: str, ids: Mapping[int, int]) -> int:
    """A detached mount of `path` that shows the files of some users and groups as those of others. Raises OSError."""
    return _mapped(path, ids, ids)


def _mapped(path: str, uids: Mapping[int, int], gids: Mapping[int, int]) -> int:
    userns = _namespace(uids, gids)
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
