"""A prepared view: all that it takes to mount it, any number of times, by any process that is given its descriptor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from .. import kernel
from .zones import Zone

Recipe = Literal["A", "B", "C", "D"]

# Who owns, on the host, what a root's sandbox may not write to: root, whom no namespace of a sandbox knows.
STRANGER = 0
# Who the sandbox's user is in a mask that is shown to each as its own.
FIXED = 1


class View(NamedTuple):
    """What `prepare` gives and `mount` takes.

    Attributes:
        recipe: how it is enforced: A by owners, B and C by read-only mounts.
        mask: a descriptor of the mask, a detached mount; -1 where there is a `farm` instead.
        inhabited: whether it is one of a mount namespace instead, whose root is the mask. What was copied from there
            could not be copied again: the kernel lets nobody do that elsewhere.
        parts: the layers of the mask; see `mask`.
        mapped: whether the owner of its part `own` is to be shown as the sandbox's user; else, if it has such a part,
            it is for one sandbox only.
        mode, owned: of the root, which overlayfs takes from the upper layer.
        covers: so many layers, the oldest, are below the mask: they give content and no names.
        zones: see `zones`; with recipe A only where a kernel in user space is not to be trusted with owners alone.
        writable: the directories in which the sandbox may make files, topmost ones only; see `writable_places`.
        unenforced: paths whose level is not enforced. They are links, and only where there are zones: a link that may
            not be changed, in a directory that may, can be replaced. The review gate refuses it all the same.
        farm: a directory that serves as the mask and has the content, too: the source is not needed; see `farm`.
    """

    recipe: Recipe
    mask: int
    parts: tuple[str, ...]
    mapped: bool
    mode: int
    owned: bool
    covers: int = 0
    zones: tuple[Zone, ...] = ()
    writable: tuple[str, ...] = ()
    unenforced: tuple[str, ...] = ()
    farm: str = ""
    inhabited: bool = False

    def to_json(self) -> dict[str, Any]:
        """All but the descriptor, which is to be sent beside it."""
        return {**self._asdict(), "mask": None}

    def clone(self) -> int:
        """A fresh detached mount of the mask; before Linux 6.15 only for who has it among its mounts."""
        if not self.inhabited:
            return kernel.open_tree_at(self.mask)
        with _visiting(self.mask):
            return kernel.open_tree("/", recursive=False)

    def close(self) -> None:
        if self.mask >= 0:
            os.close(self.mask)


@contextlib.contextmanager
def _visiting(namespace: int) -> Iterator[None]:
    """Among the mounts of another namespace, and back in the same directory."""
    back = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kernel.setns(namespace, kernel.CLONE_NEWNS)
        try:
            yield
        finally:
            kernel.setns(back, kernel.CLONE_NEWNS)
            os.fchdir(directory)
    finally:
        os.close(back)
        os.close(directory)


def from_json(data: dict[str, Any], mask: int) -> View:
    """The view that was sent with `to_json`, and its descriptor."""
    zones = tuple(Zone(str(path), bool(writable)) for path, writable in data["zones"])
    lists: dict[str, Sequence[str]] = {
        name: tuple(map(str, data[name])) for name in ("parts", "writable", "unenforced")
    }
    return View(**{**data, **lists, "mask": mask, "zones": zones})
