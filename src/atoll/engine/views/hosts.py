"""What this host allows, tried rather than guessed, and the recipe that follows from it."""

from __future__ import annotations

import os

from ...errors import Unsupported
from .. import kernel
from .view import Recipe

_known: dict[bool, bool] = {}

WITHOUT_RULES = 'Or say preset="full-access" (--preset full-access), which has no rules.'


def choose(rootless: bool, has_subids: bool, can_overlay: bool) -> Recipe:
    """How levels are enforced.

    Raises:
        Unsupported: nothing enforces them here.
    """
    if not rootless:
        return "A" if can_overlay else "D"
    if not can_overlay:
        raise Unsupported(
            "Path permissions cannot be enforced here: an ordinary user needs overlayfs in a user namespace for them.",
            hint=f"Use Linux 5.11 or newer, or run as root. {WITHOUT_RULES}",
        )
    return "C" if has_subids else "B"


def has_subids() -> bool:
    """Whether this process, in its user namespace, has a second user and group to give files to."""
    return all(_maps_two(name) for name in ("uid_map", "gid_map"))


def _maps_two(name: str) -> bool:
    with open(f"/proc/self/{name}", encoding="ascii") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    return all(any(start <= wanted < start + count for start, _, count in ranges) for wanted in (0, 1))


def can_mask(rootless: bool) -> bool:
    """Whether overlayfs takes a mask (Linux 6.5 as root, 6.16 in a user namespace). Asked once in a process and its
    children."""
    if rootless not in _known:
        _known[rootless] = _in_child(lambda: _try_mask(rootless))
    return _known[rootless]


def can_overlay(rootless: bool) -> bool:
    """Whether overlayfs can be mounted at all."""
    return can_mask(rootless) or _in_child(lambda: _try_overlay(rootless))


def _in_child(action: object) -> bool:
    """Whether something works, in mounts of its own that go with it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            kernel.mount("probe", "/tmp", "tmpfs", 0, "size=1m")
            for name in ("mask", "source", "upper", "work", "merged"):
                os.mkdir(f"/tmp/{name}")
            if callable(action):
                action()
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _try_overlay(rootless: bool) -> None:
    kernel.mount("probe", "/tmp/merged", "overlay", 0, _options(rootless, "/tmp/mask:/tmp/source"))
    os.mkdir("/tmp/merged/made")


def _try_mask(rootless: bool) -> None:
    with open("/tmp/source/file", "wb") as file:
        file.write(b"content")
    namespace = "user" if rootless else "trusted"
    fd = os.open("/tmp/mask/file", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    os.ftruncate(fd, 7)
    os.setxattr(fd, f"{namespace}.overlay.metacopy", b"")
    os.setxattr(fd, f"{namespace}.overlay.redirect", b"/file")
    os.close(fd)
    options = _options(rootless, "/tmp/mask::/tmp/source")
    try:
        kernel.mount("probe", "/tmp/merged", "overlay", 0, f"{options},redirect_dir=nofollow")
    except OSError:
        kernel.mount("probe", "/tmp/merged", "overlay", 0, f"{options},metacopy=on")
    with open("/tmp/merged/file", "rb") as file:
        if file.read() != b"content":
            raise OSError("the mask hides the content")


def _options(rootless: bool, layers: str) -> str:
    return f"lowerdir={layers},upperdir=/tmp/upper,workdir=/tmp/work" + (",userxattr" if rootless else "")
