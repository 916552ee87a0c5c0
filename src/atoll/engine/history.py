"""The snapshots of a state directory, for clients: what there is of them on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from .layers import Layers, Stack
from .layout import Layout


def manifests(places: Layout) -> list[Mapping[str, Any]]:
    """Every snapshot, newest first."""
    names = Layers(places).snapshots()
    found: list[Mapping[str, Any]] = [each for name in names if (each := _readable(places, name)) is not None]
    return sorted(found, key=lambda each: float(each.get("created", 0.0)), reverse=True)


def _readable(places: Layout, name: str) -> dict[str, Any] | None:
    """A snapshot; None for one that was deleted just now, or that cannot be read."""
    try:
        return manifest(places, name)
    except ValueError:
        return None


def manifest(places: Layout, name: str) -> dict[str, Any] | None:
    """What was written down with a snapshot, its layers, and what they take on disk; None if there is none.

    Raises:
        ValueError: it cannot be read.
    """
    layers = Layers(places)
    try:
        found = layers.snapshot(name)
    except FileNotFoundError:
        return None
    stack = Stack.from_json(found["stack"])
    return {**found, "layers": list(stack.layers), "size": _size(layers, stack)}


def _size(layers: Layers, stack: Stack) -> int:
    with contextlib.suppress(FileNotFoundError):
        return layers.taken(stack)
    return 0


def delete(places: Layout, name: str) -> None:
    """Forget a snapshot, and remove what nobody needs any more."""
    layers = Layers(places)
    with contextlib.suppress(FileNotFoundError):
        layers.remove_snapshot(name)
    layers.collect()
