"""The state directory: where atoll keeps its registry, its sockets and the files of sandboxes.

`$ATOLL_HOME`, else `$XDG_STATE_HOME/atoll`, else `~/.local/state/atoll`.
"""

from __future__ import annotations

import os
import stat

from .errors import StoreError


def state_dir() -> str:
    """The state directory, which is there and private to this user when the call returns.

    Sockets that command sandboxes lie in it, so a directory that others can write to is refused.

    Raises:
        StoreError: it cannot be made, or is not ours alone; the hint says what to do.
    """
    path = _choose()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        found = os.stat(path)
    except OSError as error:
        raise StoreError(
            f"The state directory {path} cannot be made: {error.strerror}.",
            hint="Set ATOLL_HOME to a directory that you own.",
        ) from error
    _check(path, found)
    return path


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
    if found.st_mode & 0o022:
        raise StoreError(
            f"Others can write to the state directory {path} (mode {stat.S_IMODE(found.st_mode):o}).",
            hint=f"Run: chmod 700 {path}",
        )
