"""Making one layer of many, in the background, for a sandbox that stands on a long chain of them.

```
<home>/jail/boxes/<id>/merged    which layers, and the one that they become; it counts when it is ready
```

Layers do not change, so this needs nobody to hold still: the next change of what the sandbox stands on takes the new
one instead of the others. Those stay as long as anybody else names them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from .layers import MOST, Layers, Stack, new_layer, write_whole
from .layout import Layout

ENOUGH, RECENT = 20, 8
"""How many layers are too many, and how many of the newest stay as they are."""
TOO_MANY = MOST - 20
"""How many are so many that those are merged, too, which others name; their content is then stored twice."""


class Merged(NamedTuple):
    """Some layers, in a row, newest first, and the one that has the same in it."""

    layers: tuple[str, ...]
    into: str
    ready: bool = False


def read(places: Layout, sandbox: str) -> Merged | None:
    """What is being merged, or was, for a sandbox."""
    try:
        with open(_path(places, sandbox), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return Merged(tuple(found["layers"]), str(found["into"]), bool(found["ready"]))


def forget(places: Layout, sandbox: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(places, sandbox))


def _path(places: Layout, sandbox: str) -> str:
    return f"{places.box(sandbox)}/merged"


def shortened(stack: Stack, merged: Merged | None) -> Stack:
    """With the one layer instead of the many, if they are there."""
    if merged is None or not merged.ready:
        return stack
    work, tmp, home = (_replaced(chain, merged) for chain in (stack.work, stack.tmp, stack.home))
    if work is None or tmp is None or home is None:
        return stack
    return stack._replace(work=work, tmp=tmp, home=home)


def _replaced(chain: tuple[str, ...], merged: Merged) -> tuple[str, ...] | None:
    """None where they are not in a row, or not all there that should be."""
    members = [layer for layer in chain if layer in merged.layers]
    if not members:
        return chain
    start = chain.index(members[0])
    end = start + len(members)
    if tuple(members) != chain[start:end] or tuple(members) != merged.layers[: len(members)]:
        return None
    if len(members) < len(merged.layers) and end != len(chain):
        return None
    return (*chain[:start], merged.into, *chain[end:])


def chosen(stack: Stack, alone: set[str]) -> tuple[str, ...]:
    """Which layers to merge: the longest row of old ones that nobody else names."""
    old = stack.layers[RECENT:]
    if len(stack.layers) > TOO_MANY:
        return old
    best: list[str] = []
    row: list[str] = []
    for layer in old:
        row = [*row, layer] if layer in alone else []
        best = max(best, row, key=len)
    return tuple(best)


@contextlib.contextmanager
def alone_at_it(places: Layout, sandbox: str) -> Iterator[bool]:
    """Whether nobody else is merging for this sandbox, as long as this lasts."""
    fd = os.open(f"{places.box(sandbox)}/merging", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(fd)


def merge(places: Layout, sandbox: str, uid: int | None, source: str | None) -> None:
    """Merge what there is to merge for a sandbox. Only for a process that does nothing else afterwards.

    Raises:
        OSError, ValueError: it cannot be done, or what it stands on has changed meanwhile; nothing counts.
    """
    layers = Layers(places)
    stack = layers.stack(sandbox)
    if len(stack.layers) <= ENOUGH:
        return
    with alone_at_it(places, sandbox) as mine:
        if not mine:
            return
        before = read(places, sandbox)
        if before is not None and before.ready and shortened(stack, before) != stack:
            return
        with layers.naming():
            group = chosen(stack, set(layers.garbage(besides=sandbox)))
            if len(group) < 2:
                return
            made = Merged(group, new_layer())
            layers.make(made.into, uid=uid)
            write_whole(_path(places, sandbox), made._asdict())
        from .portable.union import Union

        size = Union(layers, places, stack, group, source).write(made.into, uid)
        layers.describe(made.into, uid=uid, size=size)
        write_whole(_path(places, sandbox), made._replace(ready=True)._asdict())
