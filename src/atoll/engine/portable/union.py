"""Several layers as the one that overlayfs would see in their place."""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from .. import disk, jail, kernel, usage
from ..layers import DISK, Layers, Stack
from ..layout import Layout
from . import PLACES, headers
from .capture import LAYER_OF_ROOT, LAYER_OF_USER, Capture, Eyes, opened, xattrs_of
from .exporting import Once
from .headers import Entry
from .planting import Ground, Planter
from .stage import Stage
from .stream import Pipe

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Union:
    """Merges some layers of a stack, in a row, newest first.

    Args:
        source: the directory that lies below the workspace, if there is one.
    """

    def __init__(
        self, layers: Layers, places: Layout, stack: Stack, group: tuple[str, ...], source: str | None
    ) -> None:
        self._layers = layers
        self._places = places
        self._stack = stack
        self._group = group
        self._source = source
        self._stage = Stage(layers, places, inside=True)
        self._overlay = LAYER_OF_USER if self._stage.rootless else LAYER_OF_ROOT

    def write(self, into: str, uid: int | None) -> int:
        """Fill the layer `into`, which is empty, for a sandbox whose user is `uid`. Gives the bytes that it takes.

        Raises:
            OSError: it cannot be filled.
        """
        reader, writer = os.pipe2(os.O_CLOEXEC)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(reader)
                with open(writer, "wb", buffering=1 << 20) as sink:
                    self._capture(Capture(sink))
                code = 0
            except OSError as error:
                sys.stderr.write(f"Layers cannot be merged: {error}.\n")
            finally:
                os._exit(code)
        os.close(writer)
        try:
            size = self._plant(reader, into, uid)
        finally:
            os.close(reader)
            _, status = os.waitpid(child, 0)
        if status:
            raise OSError("the layers could not be read")
        return size

    def _plant(self, reader: int, into: str, uid: int | None) -> int:
        path = self._layers.path(into)
        images = [f"{self._layers.path(layer)}/{DISK}" for layer in self._group]
        on_disk = [os.stat(each).st_size for each in images if os.path.exists(each)]
        target = path
        if on_disk:
            image = f"{path}/{DISK}"
            # With room for all that they have room for; few sizes, since an empty one of each is kept.
            size = min(1 << sum(on_disk).bit_length(), disk.LARGEST)
            disk.copy_sparse(disk.prepare(f"{self._places.top}/disks", size), image)
            target = self._stage.new()
            with disk.shared(image) as device:
                kernel.mount(device, target, "ext4", jail.DISK_FLAGS, "")
        root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        planter = Planter(root, Ground(uid, self._places.layers))
        try:
            planter.plant(Pipe(reader))
            if self._source is not None:
                os.rename("work", "upper", src_dir_fd=root, dst_dir_fd=root)
            for name in ("work", "upper", "tmp", "home"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=root)
            return usage.used(root) if on_disk else usage.disk(path)
        finally:
            planter.close()
            os.close(root)

    def _capture(self, capture: Capture) -> None:
        for place in PLACES:
            chain = getattr(self._stack, place)
            members = [layer for layer in chain if layer in self._group]
            name = "upper" if place == "work" and self._source is not None else place
            capture.begin(place)
            if not members:
                continue
            seen = chain[chain.index(members[0]) :]
            roots = [self._stage.tree(f"{self._stage.layer(layer)}/{name}") for layer in members]
            eyes = Eyes(self._overlay, None if self._stage.rootless else self._merged(seen, name))
            covered = len(seen) > len(members) or name == "upper"
            _Walk(capture, place.encode(), roots, eyes, covered=covered).run()
        capture.end()

    def _merged(self, layers: tuple[str, ...], name: str) -> Once:
        """These with all that is below them."""

        def make() -> int:
            lowers = [f"{self._stage.layer(layer)}/{name}" for layer in layers]
            return self._stage.merged([*lowers, str(self._source)] if name == "upper" else lowers)

        return Once(make)


class _Walk:
    """Writes one place of the union.

    Args:
        covered: whether layers that are not part of it lie below it.
    """

    def __init__(self, capture: Capture, place: bytes, roots: list[int], eyes: Eyes, *, covered: bool) -> None:
        self._capture = capture
        self._place = place
        self._roots = roots
        self._eyes = eyes
        self._covered = covered

    def run(self) -> None:
        pending = [(b"", iter(self._names(b"", self._roots).items()))]
        while pending:
            directory, names = pending[-1]
            name, chain = next(names, (None, []))
            if name is None:
                pending.pop()
                continue
            path = directory + b"/" + name if directory else name
            below = self._entry(path, chain)
            if below:
                pending.append((path, iter(self._names(path, below).items())))

    def _names(self, path: bytes, roots: list[int]) -> dict[bytes, list[int]]:
        """What is in a directory of these layers, and which of them have it, newest first."""
        found: dict[bytes, list[int]] = {}
        for root in roots:
            with opened(root, path, _FOLDER) as fd:
                for name in os.listdir(fd):
                    found.setdefault(os.fsencode(name), []).append(root)
        return dict(sorted(found.items()))

    def _entry(self, path: bytes, chain: list[int]) -> list[int]:
        """Write what the newest has; gives those that a directory goes on in."""
        status = self._status(chain[0], path)
        if stat.S_ISDIR(status.st_mode):
            return self._directory(path, chain, status)
        whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
        if self._covered or not whiteout:
            self._capture.single(chain[0], path, self._place, self._eyes)
        return []

    def _directory(self, path: bytes, chain: list[int], status: os.stat_result) -> list[int]:
        below: list[int] = []
        opaque = moved = False
        mine: tuple[tuple[bytes, bytes], ...] = ()
        for root in chain:
            if not stat.S_ISDIR(self._status(root, path).st_mode):
                opaque = True
                break
            with opened(root, path, _FOLDER) as fd:
                own, users = xattrs_of(fd, self._eyes.overlay)
            mine = mine if below else users
            below.append(root)
            moved = moved or "redirect" in own
            if own.get("opaque") == b"y":
                opaque = True
                break
        moved = moved and self._eyes.merged is not None
        full = self._place + b"/" + path
        self._capture.put(
            Entry(
                full,
                "directory",
                status.st_mode & headers.MODES,
                status.st_mtime_ns,
                opaque=(opaque and self._covered) or moved,
                xattrs=mine,
            )
        )
        if moved and self._eyes.merged is not None:
            self._capture.below(self._eyes.merged(), path, self._place, Eyes())
            return []
        return below

    def _status(self, root: int, path: bytes) -> os.stat_result:
        parent, _, name = path.rpartition(b"/")
        with opened(root, parent, os.O_PATH | os.O_DIRECTORY) as fd:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
