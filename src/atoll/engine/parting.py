"""The end of a sandbox that stands on layers: what ends with it need not reach a disk any more, and the rest can later.

Unmounting a disk waits until all that was written is on it, which takes seconds where much was.
"""

from __future__ import annotations

import contextlib
import os

from . import disk, jail, kernel
from .layers import DISK, Layers
from .layout import Layout
from .places import aside

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def give_up(places: Layout, sandbox: str) -> list[int]:
    """Have the disks of its top, and of the layers that nobody else names, forget what they have not written.

    From then on nobody can name these layers any more. Gives descriptors that keep the other layers mounted: who
    closes the last one waits for what was written to them.
    """
    layers = Layers(places)
    stack = layers.stack(sandbox)
    if not stack:
        return []
    doomed = set(layers.doom(sandbox))
    disks = {f"{layers.path(layer)}/{DISK}": layer in doomed for layer in {*stack.layers, *doomed}}
    disks[f"{places.box(sandbox)}/{stack.top}"] = True
    reached = reach(places, sandbox, list(disks))
    for path, fd in reached.items():
        if disks[path]:
            disk.shut_down_at(fd)
            os.close(fd)
    return [fd for path, fd in reached.items() if not disks[path]]


def reach(places: Layout, sandbox: str, images: list[str]) -> dict[str, int]:
    """Descriptors of the file systems on those of these disks that are mounted somewhere."""
    mounted = {image: device for image in images if (device := disk.device_of(image))}
    if not mounted:
        return {}
    found = {}
    stage = f"{places.box(sandbox)}/stage"
    with contextlib.suppress(FileExistsError):
        os.mkdir(stage, 0o700)
    with aside():
        for image, device in mounted.items():
            # One that is gone by now needs nothing.
            with contextlib.suppress(OSError):
                kernel.mount(device, stage, "ext4", jail.DISK_FLAGS, "")
                found[image] = os.open(stage, _DIRECTORY)
    return found
