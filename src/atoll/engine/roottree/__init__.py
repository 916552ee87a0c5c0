"""A complete, minimal root file system made from this machine, with nothing downloaded.

It holds a shell, the core utilities and the usual small tools, the Python that runs atoll with its standard library,
the shared libraries of all these, an /etc that tells nothing of this host, and the guest. Walls with a file system of
their own use it as their root, or make an image of it. It is made once for each interpreter and version of atoll:

```
<home>/roots/<tag>/tree/    the root file system; `build`
<home>/roots/<tag>/busybox/ the same with other `ls` and `stat`; `with_busybox`
<home>/roots/<tag>/alone/   Python, its library, its shared libraries, the loader and the guest; `self_contained`
```

Packages that the base installation of Python has are not in it: a wall shows `site_packages()` at `SITE_PACKAGES`, read
only, as the jail does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable

from .. import layout
from ..launch import cloudpickle_directory
from ..removal import remove_tree
from ..steward.lines import package_directory

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = f"/usr/local/bin/python{_VERSION}"
"""Python in the tree."""
LIBRARY = f"/usr/local/lib/python{_VERSION}"
SITE_PACKAGES = f"{LIBRARY}/site-packages"
GUEST = "/opt/atoll"
"""Where the guest is in the tree: `/opt/atoll/atoll/guest/__main__.py`."""
CLOUDPICKLE = f"{GUEST}/cloudpickle"
"""Where the caller's cloudpickle is in the tree, if there is one."""
ALONE = GUEST
"""Where walls show what `self_contained` gives, so that the guest has one path everywhere."""
WHEELS = "/usr/share/python-wheels"
"""Where a distribution keeps the wheel of pip beside a Python without it, on the host and in the tree."""
# Changes with what is put into a tree.
_FORMAT = 2
_OLD = 30 * 86400.0


def build(home: str) -> str:
    """The directory of a whole root file system; made when there is none. May block for seconds, once.

    Processes that ask at the same time end with the same one. It is for reading only. The directories that a wall
    mounts on are there and empty: /proc /sys /dev /tmp /run /workspace /home/user /packages and `SITE_PACKAGES`.

    Raises:
        WallUnavailable: this machine lacks what it takes.
        OSError: it cannot be written.
    """
    from . import making

    return _once(home, "tree", making.tree)


def is_built(home: str) -> bool:
    """Whether `build` has nothing to do."""
    return os.path.isdir(f"{home}/roots/{tag()}/tree")


def with_busybox(home: str) -> str:
    """The same, with `ls` and `stat` of busybox where this machine has it; for a kernel that GNU's do not work on.

    Raises as `build` does.
    """
    from . import making

    tree = build(home)
    return _once(home, "busybox", lambda draft: making.with_busybox(tree, draft))


def self_contained(home: str) -> str:
    """A directory with all that a guest needs to run in any image, also one without Python or with another C library.

    Shown read-only at a path DIR inside (use `ALONE`), Python is started there as

        DIR/bin/ld.so --library-path DIR/lib DIR/bin/python -I -S DIR/atoll/guest/__main__.py …

    It finds its standard library by itself, in DIR/lib/pythonX.Y. The loader is named because the image may have none
    at the place where this Python looks for it; therefore `sys.executable` cannot be started by itself in there.

    Raises:
        WallUnavailable: this machine lacks what it takes.
        OSError: it cannot be written.
    """
    from . import making

    tree = build(home)
    return _once(home, "alone", lambda draft: making.alone(tree, draft))


def hold(path: str) -> int:
    """A descriptor that keeps what one of these gave from being removed, for as long as it is open. Raises OSError."""
    lock = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def python(*, packages: bool) -> str:
    """The Python of a sandbox on a tree: the one that sees its packages."""
    return f"{layout.PACKAGES}/bin/{os.path.basename(PYTHON)}" if packages else PYTHON


def python_path(*, packages: bool) -> list[str]:
    """Its `sys.path`: the standard library, what `install` adds, what the sandbox was made with, and what the host's
    Python has."""
    own = f"{layout.HOME_INSIDE}/.local/lib/{os.path.basename(LIBRARY)}/site-packages"
    made_with = [f"{layout.PACKAGES}/lib/{os.path.basename(LIBRARY)}/site-packages"] if packages else []
    return [LIBRARY, f"{LIBRARY}/lib-dynload", own, *made_with, SITE_PACKAGES]


def alone_command(place: str = ALONE) -> list[str]:
    """How the Python of `self_contained` is started where it is shown at `place`."""
    return [f"{place}/bin/ld.so", "--library-path", f"{place}/lib", f"{place}/bin/python"]


def site_packages() -> str:
    """The packages of the base installation of this Python, on the host; empty if there are none."""
    path = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "site-packages")
    return path if os.path.isdir(path) else ""


def interpreter() -> str:
    """The program of the base installation of this Python."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def tag() -> str:
    """Names the tree that fits this atoll, this interpreter and this system: after an upgrade a new one is made."""
    import hashlib

    seen = [f"{_FORMAT}", sys.version]
    pickle = f"{cloudpickle_directory()}/cloudpickle.py"
    pip = (f"{site_packages()}/pip", WHEELS)
    for path in (interpreter(), os.__file__, pickle, *pip, "/bin/sh", "/usr/bin/env", "/etc/ld.so.cache"):
        with contextlib.suppress(OSError):
            found = os.stat(path)
            seen.append(f"{path} {found.st_ino} {found.st_size} {found.st_mtime_ns}")
    for part in ("guest", "wire"):
        place = f"{package_directory()}/atoll/{part}"
        with os.scandir(place) as entries:
            files = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)
        seen += [f"{part} {file}" for file in files if file[0] != "__pycache__"]
    return hashlib.sha256("\0".join(seen).encode(errors="surrogateescape")).hexdigest()[:16]


def _once(home: str, name: str, make: Callable[[str], None]) -> str:
    """A directory of the tag's, which is there when it is whole."""
    place = f"{home}/roots/{tag()}"
    target = f"{place}/{name}"
    if os.path.isdir(target):
        os.utime(place)
        return target
    os.makedirs(place, mode=0o755, exist_ok=True)
    _forget_old(os.path.dirname(place))
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(target):
            return target
        draft = f"{target}.draft"
        remove_tree(draft)  # of one that was killed
        try:
            os.mkdir(draft, 0o755)
            make(draft)
            open_to_all(draft)
            os.rename(draft, target)
        except BaseException:
            remove_tree(draft)
            raise
    finally:
        os.close(lock)
    return target


def _forget_old(roots: str) -> None:
    """Remove trees of other interpreters and versions that nobody has wanted for long, and nobody holds."""
    for name in os.listdir(roots):
        place = f"{roots}/{name}"
        with contextlib.suppress(OSError):
            if time.time() - os.stat(place).st_mtime < _OLD:
                continue
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(place)
            finally:
                os.close(lock)


def open_to_all(root: str) -> None:
    """Let every sandbox read a tree, and start what its owner may, whatever the caller's umask."""
    for directory, _, names in os.walk(root):
        found = os.stat(directory).st_mode
        os.chmod(directory, found & 0o7777 | 0o755)  # noqa: S103 - that is the point
        for name in names:
            path = f"{directory}/{name}"
            found = os.lstat(path).st_mode
            wanted = found | (0o555 if found & stat.S_IXUSR else 0o444)
            if stat.S_ISREG(found) and found != wanted:
                os.chmod(path, stat.S_IMODE(wanted))
