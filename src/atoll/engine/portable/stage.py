"""A place to mount layers in, seen by nobody else: a mount namespace of this process's own."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from .. import disk, jail, kernel, threshold
from ..layers import DISK, Layers
from ..layout import Layout

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Stage:
    """Only for a process that does nothing else: it leaves the namespaces of its caller for good.

    `inside` is for one that is in a user namespace already, if it needs one.
    """

    def __init__(self, layers: Layers, places: Layout, *, inside: bool = False) -> None:
        directory = f"{places.layers}/.stage"
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self.rootless = threshold.is_rootless()
        self._layers = layers
        self._count = 0
        self._mounted: dict[str, str] = {}
        if self.rootless and not inside:
            threshold.enter()
        else:
            kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("stage", directory, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700,size=1m")
        os.chdir(directory)

    def new(self) -> str:
        """An empty directory to mount on, by a short name: overlayfs takes no more than a page of options."""
        self._count += 1
        name = f"{os.getpid():x}.{self._count}"  # a fork of this process goes on with the same number
        os.mkdir(name)
        return name

    def layer(self, layer: str) -> str:
        """Where the directories of a layer are."""
        path = self._layers.path(layer)
        if not os.path.exists(f"{path}/{DISK}"):
            return path
        if layer not in self._mounted:
            self._mounted[layer] = self.new()
            with disk.shared(f"{path}/{DISK}") as device:
                kernel.mount(device, self._mounted[layer], "ext4", jail.DISK_FLAGS, "")
        return self._mounted[layer]

    def tree(self, path: str) -> int:
        """A directory without what is mounted below it, as far as that can be had."""
        try:
            return kernel.open_tree(path, recursive=False)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            return os.open(path, _DIRECTORY)

    def merged(self, lowers: Sequence[str]) -> int:
        """Directories as overlayfs shows them, one over the other, to be read."""
        target = self.new()
        escaped = ":".join(map(jail.escape, lowers))
        options = f"lowerdir={escaped}," + ("userxattr" if self.rootless else "redirect_dir=on,metacopy=on")
        if len(lowers) == 1:
            return self.tree(lowers[0])
        kernel.mount("merged", target, "overlay", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV, options)
        return os.open(target, _DIRECTORY)

    def unmount(self, name: str) -> None:
        with contextlib.suppress(OSError):
            kernel.umount(name)
