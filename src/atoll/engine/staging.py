"""What a review looks at: the workspace as its sandbox sees it, and the layers that hold what it has changed."""

from __future__ import annotations

import os

from . import disk, jail, places
from .layers import Layers
from .restack import Sandbox
from .settings import BirthFailed, Settings

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def descriptors(settings: Settings, sandbox: Sandbox) -> list[int]:
    """Of the workspace, then of the upper directories, newest first. All are mounts that are attached nowhere else.

    Raises:
        BirthFailed: it has no source, so there is nothing to compare with.
        OSError: something of it is gone.
    """
    if sandbox.source is None:
        raise BirthFailed(
            "This sandbox was made without a source, so there is nothing to compare its files with.", "invalid_input"
        )
    with jail.inside(sandbox.first):
        merged = os.open(sandbox.workdir, _DIRECTORY)
    stack = Layers(settings.layout).stack(sandbox.id)
    device = disk.device_of(f"{settings.layout.box(sandbox.id)}/{stack.top}") if sandbox.loop else ""
    if sandbox.loop and not device:
        raise BirthFailed("The disk of this sandbox is gone.", "sandbox_error")
    with places.aside():
        ground = places.Ground(sandbox.id, stack, device, sandbox.uid, sandbox.source, sandbox.workdir)
        uppers = [os.open(path, _DIRECTORY) for path in places.Builder(settings, ground).uppers()]
        os.chdir("/")
    return [merged, *uppers]
