"""Zones: where one user owns everything, mounts that are read-only say what may be written.

A directory whose writability differs from that of its parent is covered by a copy of the same mount with the other
setting, and so is a file that differs from its directory. A mount point can be neither removed nor renamed, and its
parents are directories of a lower layer, which overlayfs does not rename.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from ...errors import Unsupported
from .. import kernel
from .tree import Directory, Tree

# Each zone is a mount, and the host has a limit on those (fs.mount-max) that all sandboxes share.
MOST = 10_000
_PLACE = os.O_PATH | os.O_NOFOLLOW
_BELOW = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS
_GONE = (errno.ENOENT, errno.ENOTDIR)
_WRITABLE = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_READ_ONLY = _WRITABLE | kernel.MOUNT_ATTR_RDONLY


class Zone(NamedTuple):
    """A path of the view with another writability than what is above it. The root's is given by the first zone."""

    path: str
    writable: bool


class Plan(NamedTuple):
    """The zones of a view, parents first, and the paths whose level no mount can enforce."""

    zones: tuple[Zone, ...]
    unenforced: tuple[str, ...]


def plan(tree: Tree) -> Plan:
    """What has to be mounted.

    Raises:
        Unsupported: it takes more mounts than a host should have.
    """
    zones: list[Zone] = [Zone("", tree.root.level == "write")]
    unenforced: list[str] = []
    for directory in tree.visible():
        writable = directory.level == "write"
        differing = (child for child in directory.children if child.visible and (child.level == "write") != writable)
        zones.extend(Zone(child.path, not writable) for child in differing)
        _plan_entries(directory, writable, zones, unenforced)
    if len(zones) > MOST:
        raise Unsupported(
            f"These rules need {len(zones)} mounts for a user without subordinate ids; at most {MOST} are made.",
            hint="Have root give your user a range in /etc/subuid and /etc/subgid, or write rules for directories "
            "rather than for single files.",
        )
    return Plan(tuple(zones), tuple(unenforced))


def _plan_entries(directory: Directory, writable: bool, zones: list[Zone], unenforced: list[str]) -> None:
    prefix = f"{directory.path}/" if directory.path else ""
    for entry in directory.entries:
        if entry.level == "none" or (entry.level == "write") == writable:
            continue
        if entry.kind != "symlink":
            zones.append(Zone(prefix + entry.name, not writable))
        elif writable:
            unenforced.append(prefix + entry.name)


def cover(target: str, zones: tuple[Zone, ...]) -> None:
    """Lay the zones over what is mounted, writable, at `target`.

    A path that is gone has nothing left to protect.

    Raises:
        OSError: a mount was refused, or a link is on the way to a zone.
    """
    if zones in ((), (Zone("", writable=True),)):
        return
    below = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lay(below, below, zones[0])
        top = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for zone in zones[1:]:
                _lay(below, top, zone)
        finally:
            os.close(top)
    finally:
        os.close(below)


def _copy(below: int, path: str, writable: bool) -> int:
    tree = kernel.open_tree_at(below, path)
    if writable:
        kernel.mount_setattr(tree, _WRITABLE, recursive=False, clear=kernel.MOUNT_ATTR_RDONLY)
    else:
        kernel.mount_setattr(tree, _READ_ONLY, recursive=False)
    return tree


def _lay(below: int, top: int, zone: Zone) -> None:
    try:
        place = kernel.openat2(top, zone.path or ".", _PLACE, _BELOW)
    except OSError as error:
        if error.errno in _GONE:
            return
        raise
    try:
        tree = _copy(below, zone.path, zone.writable)
        try:
            kernel.move_mount_on(tree, place)
        finally:
            os.close(tree)
    finally:
        os.close(place)
