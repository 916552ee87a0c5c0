"""The state directory: where atoll keeps its registry, its sockets and the files of sandboxes.

`$ATOLL_HOME`, else `$XDG_STATE_HOME/atoll`, else `~/.local/state/atoll`.
"""

from __future__ import annotations

import os
import stat

from .errors import StoreError

_OTHERS = 0o077
_MOST_LINKS = 40

_reached: set[tuple[int, str, int, int]] = set()
"""Whose way was looked at by this process: a user, a path, and the directory that was found there."""


def state_dir() -> str:
    """The state directory, which is there and private to this user when the call returns.

    Sockets that command sandboxes lie in it, and files of sandboxes whose own modes say nothing: that nobody else can
    enter this one directory is what protects them. An empty one is closed to others; one that holds something already
    is refused, since it may be a place that others need. So is one on whose way somebody else could put another in its
    place.

    Raises:
        StoreError: it cannot be made, or is not ours alone; the hint says what to do.
    """
    path = _choose()
    try:
        try:
            make_private(path)
        except FileExistsError:
            pass
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            found = _closed(path)
        way = (os.geteuid(), path, found.st_dev, found.st_ino)
        reason = "" if way in _reached else exchangeable(path)
    except OSError as error:
        raise StoreError(
            f"The state directory {path} cannot be made: {error.strerror}.",
            hint="Set ATOLL_HOME to a directory that you own.",
        ) from error
    _check(path, found)
    if reason:
        raise StoreError(
            f"The state directory {path} could be exchanged by another user: {reason}.",
            hint="Set ATOLL_HOME to a directory that is below those of root or your own, where nobody else can write.",
        )
    _reached.add(way)
    return path


def private(path: str, flags: int) -> int:
    """An opener for `open` that makes files which are this user's alone, whatever the umask."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def make_private(path: str) -> None:
    """Make a directory below the state directory, and those on the way to it, for this user alone.

    `os.makedirs` gives its mode to the last one only.

    Raises:
        FileExistsError: it is there already.
        OSError: it cannot be made.
    """
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        try:
            make_private(os.path.dirname(path))
        except FileExistsError:
            pass
        os.mkdir(path, 0o700)


def _closed(path: str) -> os.stat_result:
    """What it is now that others are shut out of it, if it was empty. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not os.listdir(fd):
            os.fchmod(fd, 0o700)
        return os.fstat(fd)
    finally:
        os.close(fd)


def exchangeable(path: str) -> str:
    """Why somebody else could put another directory in the place of this one, which is absolute; empty if nobody could.
    Raises OSError.

    Each directory on the way must belong to this user or root, and so must each link, whose target is looked at, too.
    """
    # Where root's own id is not mapped, in a user namespace, its files belong to whom "/" belongs to.
    trusted = {0, os.geteuid(), os.lstat("/").st_uid}
    ahead, place, links = path.split("/")[::-1], "/", 0
    while True:
        found = os.lstat(place)
        if found.st_uid not in trusted:
            return f"{place} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                return f"{place} is one link too many"
            target = os.readlink(place)
            ahead += target.split("/")[::-1]
            place = "/" if target.startswith("/") else os.path.dirname(place)
        elif ahead and _is_shared(found):
            return f"others can write to {place} (mode {stat.S_IMODE(found.st_mode):o})"
        if not ahead:
            return ""
        place = os.path.normpath(os.path.join(place, ahead.pop()))


def _is_shared(found: os.stat_result) -> bool:
    """Whether others than its owner could rename what is in a directory."""
    # Many distributions give each user a group of the same number, and its members what the user makes.
    others = stat.S_IWOTH if found.st_gid == found.st_uid else stat.S_IWOTH | stat.S_IWGRP
    return bool(found.st_mode & others) and not found.st_mode & stat.S_ISVTX


def _choose() -> str:
    own = os.environ.get("ATOLL_HOME")
    if own:
        return _absolute(own, "ATOLL_HOME")
    state = os.environ.get("XDG_STATE_HOME")
    if state:
        return os.path.join(_absolute(state, "XDG_STATE_HOME"), "atoll")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise StoreError("This user has no home directory.", hint="Set ATOLL_HOME to a directory that you own.")
    # Whoever has a home has it already: a HOME that is not there is a mistake, which a tree made there would hide.
    if not os.path.isdir(home):
        raise StoreError(
            f"The home directory {home} does not exist.", hint="Set ATOLL_HOME to a directory that you own."
        )
    return os.path.join(home, ".local", "state", "atoll")


def _absolute(path: str, variable: str) -> str:
    if not os.path.isabs(path):
        raise StoreError(f"{variable} is {path!r}, which is relative.", hint="Give it an absolute path.")
    return os.path.normpath(path)


def _check(path: str, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise StoreError(f"The state directory {path} is no directory.", hint="Set ATOLL_HOME to another path.")
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"The state directory {path} belongs to user {found.st_uid}, and this process runs as {os.geteuid()}.",
            hint="Set ATOLL_HOME to a directory that you own.",
        )
    if found.st_mode & _OTHERS:
        raise StoreError(
            f"Others can use the state directory {path} (mode {stat.S_IMODE(found.st_mode):o}).",
            hint=f"Run: chmod 700 {path}; or set ATOLL_HOME to a directory of atoll's own.",
        )
