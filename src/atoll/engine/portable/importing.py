"""From a file to a snapshot. The file may be hostile."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ...policy.spec import spec_to_json
from .. import disk, jail, kernel
from ..layers import DISK, Layers, Stack, new_layer, new_top
from ..layout import Layout
from ..settings import FIRST_UID
from . import LAYER, MANIFEST, PLACES, Damaged, manifest
from .manifest import Blob, Manifest
from .planting import Ground, Planter
from .stage import Stage
from .stream import Member, Part, Source

_SMALLEST_DISK = 64 << 20
# What ext4 needs for a path at most, unless it has much in it.
_ENTRY = 16 << 10


class Importer:
    """Reads one snapshot.

    Args:
        file: a descriptor to read from.
        name: to give it; None for what the file says.
        limit: how many bytes it may hold.
    """

    def __init__(self, places: Layout, file: int, name: str | None, limit: int) -> None:
        self._places = places
        self._layers = Layers(places)
        self._source = Source(file, limit)
        self._name = name
        self._made: list[str] = []

    def run(self) -> str:
        """Gives its name.

        Raises:
            Damaged: the file is not what an export writes.
            FileExistsError: there is a snapshot of that name.
            OSError: the disk is full.
        """
        with self._layers.naming():
            try:
                return self._import()
            except BaseException:
                for layer in self._made:
                    self._layers.remove(layer)
                raise

    def _import(self) -> str:
        found = self._manifest()
        name = self._name or found.name
        if os.path.lexists(self._layers.snapshot_path(name)):
            raise FileExistsError(repr(name))
        self._stage = Stage(self._layers, self._places)
        self._check_space(found)
        layers = self._read_layers(found)
        work, tmp, home = (tuple(map(layers.__getitem__, found.places[place])) for place in ("work", "tmp", "home"))
        self._layers.add_snapshot(
            name,
            {
                "name": name,
                "sandbox": "",
                "created": found.created,
                "spec": spec_to_json(found.spec),
                "lost": dict(found.lost),
                "stack": Stack(work, tmp, home, new_top()).to_json(),
            },
        )
        return name

    def _manifest(self) -> Manifest:
        member = self._source.member()
        if member is None or member[0] != MANIFEST or member[1] > manifest.LARGEST:
            raise Damaged("it does not begin as a snapshot does")
        data = self._source.read(member[1])
        self._source.skip_padding(member[1])
        return manifest.read(data)

    def _check_space(self, found: Manifest) -> None:
        """What the file says of its size may be wrong; whoever tells the truth is told early."""
        needed = sum(blob.size for blob in found.layers.values())
        space = os.statvfs(self._places.layers)
        if needed > space.f_bavail * space.f_frsize:
            raise OSError(errno.ENOSPC, f"the snapshot needs {needed} bytes, and the disk has less")

    def _read_layers(self, found: Manifest) -> dict[str, str]:
        """The layers by their digests: those that are here already, and new ones."""
        known = self._known()
        layers: dict[str, str] = {}
        while (member := self._source.member()) is not None:
            digest = member[0].removeprefix(LAYER)
            if not member[0].startswith(LAYER) or digest not in found.layers or digest in layers:
                raise Damaged("it has something that it does not name")
            part = Member(self._source, member[1])
            if digest in known:
                part.drain()
                layers[digest] = known[digest]
            else:
                layers[digest] = self._read_layer(part, found.layers[digest])
            if part.digest() != digest:
                raise Damaged(f"the layer {digest[:12]}… was changed")
            self._source.skip_padding(member[1])
        for digest in found.layers:
            if digest not in layers:
                raise Damaged(f"the layer {digest[:12]}… is not in it")
        for digest, layer in layers.items():
            if layer in self._made:
                self._layers.describe(layer, **{**self._layers.about(layer), "digest": digest})
        return layers

    def _known(self) -> dict[str, str]:
        found = {}
        for layer in os.listdir(self._places.layers):
            about: Mapping[str, Any] = {}
            with contextlib.suppress(OSError, ValueError):
                about = self._layers.about(layer)
            if isinstance(about.get("digest"), str) and "top" not in about:
                found[about["digest"]] = layer
        return found

    def _read_layer(self, part: Part, expected: Blob) -> str:
        layer = new_layer()
        owner = None if self._stage.rootless else FIRST_UID
        self._made.append(layer)
        self._layers.make(layer, uid=owner)
        path = self._layers.path(layer)
        with self._room(path, expected) as directory:
            root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            planter = Planter(root, Ground(owner, self._places.layers))
            try:
                planter.plant(part)
                for place in PLACES:
                    # A place that the snapshot has nothing of in this layer.
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(place, 0o755, dir_fd=root)
                kernel.syncfs(root)
            finally:
                planter.close()
                os.close(root)
        return layer

    @contextlib.contextmanager
    def _room(self, path: str, expected: Blob) -> Iterator[str]:
        """Where the directories of a new layer are made: on a disk of its own where tops are, too."""
        if self._stage.rootless or not disk.available():
            yield path
            return
        size = _SMALLEST_DISK
        while size < min(disk.LARGEST, expected.size + expected.size // 8 + expected.entries * _ENTRY + (16 << 20)):
            size *= 2
        image = f"{path}/{DISK}"
        disk.copy_sparse(disk.prepare(f"{self._places.top}/disks", size), image)
        target = self._stage.new()
        with disk.shared(image) as device:
            kernel.mount(device, target, "ext4", jail.DISK_FLAGS, "")
        try:
            yield target
        finally:
            self._stage.unmount(target)
        with open(image, "rb") as file:
            os.fsync(file.fileno())
