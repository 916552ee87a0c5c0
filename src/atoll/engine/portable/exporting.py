"""From a snapshot to a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ...types import Spec
from .. import views
from ..layers import Layers, Stack
from ..layout import Layout
from ..places import Rules
from . import LAYER, MANIFEST, PLACES, headers, manifest
from .capture import LAYER_OF_ROOT, LAYER_OF_USER, Capture, Eyes
from .manifest import Blob, Manifest
from .stage import Stage

_UNKNOWN = "0" * 64
_SPARE = 64
"""For each layer: what its numbers may take, besides one digit each."""


class Exporter:
    """Writes one snapshot.

    Args:
        found: what is written down with it.
        source: the directory that its workspace began with, if there was one.
        rules: what of it is seen.
        target: the file, empty, to write to and to go back in.
    """

    def __init__(
        self, places: Layout, found: Mapping[str, Any], source: str | None, rules: Rules | None, target: BinaryIO
    ) -> None:
        self._layers = Layers(places)
        self._places = places
        self._found = found
        self._source = source
        self._rules = rules
        self._stack = Stack.from_json(found["stack"])
        self._target = target
        self._written: dict[str, Blob] = {}

    def export(self) -> None:
        """Raises OSError, Unportable."""
        with self._layers.naming():
            self._layers.check(self._stack)
            self._stage = Stage(self._layers, self._places)
            plan = self._plan()
            self._reserve(plan)
            digests = {key: self._write(key, parts) for key, parts in plan.items()}
            self._target.write(headers.END)
            self._target.seek(0)
            self._put_manifest(self._manifest(digests))

    def _plan(self) -> dict[str, dict[str, tuple[str, int]]]:
        """Which place of which layer goes into which layer of the file; newest first, the source last.

        A place of a layer is told by what it is called there and by how many layers of it are above.
        """
        plan: dict[str, dict[str, tuple[str, int]]] = {layer: {} for layer in self._stack.layers}
        for place in PLACES:
            layers = getattr(self._stack, place)
            if place == "work" and self._rules is not None and self._source is not None:
                layers = ()  # what the rules show of them is written instead
            for above, layer in enumerate(layers):
                plan[layer][place] = (self._name(place), above)
        if self._source is not None:
            plan[""] = {"work": ("", 0)}
        return {layer: parts for layer, parts in plan.items() if parts}

    def _name(self, place: str) -> str:
        return "upper" if place == "work" and self._source is not None else place

    def _manifest(self, digests: Mapping[str, str]) -> Manifest:
        plan = self._plan()
        order = [*self._stack.layers, ""]
        chains = {
            place: tuple(digests[layer] for layer in order if layer in plan and place in plan[layer])
            for place in PLACES
        }
        was = self._found["spec"]
        spec = Spec(workdir=was["workdir"], packages=tuple(was["packages"]))
        lost = {str(name): str(why) for name, why in (self._found.get("lost") or {}).items()}
        return Manifest(str(self._found["name"]), float(self._found["created"]), spec, lost, chains, self._written)

    def _reserve(self, plan: Mapping[str, object]) -> None:
        """Leave room for what is written when all digests are known."""
        self._written = {f"{number:064x}": Blob(0, 0) for number in range(len(plan))}
        text = manifest.write(self._manifest(dict(zip(plan, self._written, strict=True))))
        self._room = len(text) + _SPARE * len(plan)
        self._room += -self._room % headers.BLOCK
        self._written = {}
        self._target.write(headers.member(MANIFEST, self._room) + bytes(self._room))

    def _put_manifest(self, found: Manifest) -> None:
        text = manifest.write(found)
        self._target.write(headers.member(MANIFEST, self._room) + text.ljust(self._room, b" "))

    def _write(self, layer: str, parts: Mapping[str, tuple[str, int]]) -> str:
        """One layer; gives its digest."""
        begin = self._target.tell()
        self._target.write(headers.member(LAYER + _UNKNOWN, 0))
        sink = _Hashing(self._target)
        capture = Capture(sink)
        for place in PLACES:
            if place in parts:
                root, eyes = self._tree(layer, place, *parts[place])
                capture.tree(place, root, eyes)
                os.close(root)
        capture.end()
        digest = sink.hash.hexdigest()
        self._target.seek(begin)
        if digest not in self._written:
            self._target.write(headers.member(LAYER + digest, sink.size))
            self._target.seek(sink.size, os.SEEK_CUR)
            self._target.write(headers.padding(sink.size))
        else:
            self._target.truncate()
        self._written[digest] = Blob(capture.tally.entries, capture.tally.size)
        if layer and capture.tally.own and {place: name for place, (name, _) in parts.items()} == _WHOLE:
            self._layers.describe(layer, **{**self._layers.about(layer), "digest": digest})
        return digest

    def _tree(self, layer: str, place: str, name: str, above: int) -> tuple[int, Eyes]:
        if not layer:
            return self._source_tree()
        overlay = LAYER_OF_USER if self._stage.rootless else LAYER_OF_ROOT

        def merged() -> int:
            lowers = [f"{self._stage.layer(each)}/{name}" for each in getattr(self._stack, place)[above:]]
            return self._stage.merged([*lowers, self._source] if name == "upper" and self._source else lowers)

        root = self._stage.tree(f"{self._stage.layer(layer)}/{name}")
        return root, Eyes(overlay, None if self._stage.rootless else Once(merged))

    def _source_tree(self) -> tuple[int, Eyes]:
        """The source, as far as the sandbox saw it; with rules, as far as they show what became of it."""
        source = str(self._source)
        status = os.stat(source)
        owner = (status.st_uid, status.st_gid)
        if self._rules is None:
            return self._stage.tree(source), Eyes(owner=owner)
        lowers = [f"{self._stage.layer(each)}/upper" for each in self._stack.work]
        target = self._stage.new()
        views.merge(source=source, lowers=lowers, target=target, rootless=self._stage.rootless)
        judged = views.compile_tree(target, self._rules.matcher(), self._rules.ignores())
        levels = {path.path: path.level for path in judged.paths()}
        root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return root, Eyes(level=lambda path, _: levels.get(path, "none"))


_WHOLE = {place: place for place in PLACES}


class Once:
    """What is made when it is first asked for."""

    def __init__(self, make: Callable[[], int]) -> None:
        self._make = make
        self._made: int | None = None

    def __call__(self) -> int:
        if self._made is None:
            self._made = self._make()
        return self._made


class _Hashing:
    """A sink that knows what went through it."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self.hash.update(data)
        self.size += len(data)
        self._target.write(data)
