"""Sending a view to another process: as descriptors, for its description may be longer than a message."""

from __future__ import annotations

import json
import os

from . import views


def pack(view: views.View | None) -> list[int]:
    """Descriptors to send; none for none. All but the mask are the caller's to close, with `close`."""
    if view is None:
        return []
    described = os.memfd_create("view", os.MFD_CLOEXEC)
    with open(os.dup(described), "wb") as file:
        file.write(json.dumps(view.to_json()).encode())
    return [described] if view.mask < 0 else [described, view.mask]


def close(packed: list[int]) -> None:
    for fd in packed[:1]:
        os.close(fd)


def unpack(fds: list[int]) -> views.View | None:
    """What `pack` has sent; the descriptors are the view's then."""
    if not fds:
        return None
    with open(fds[0], "rb") as file:
        file.seek(0)
        data = json.load(file)
    return views.from_json(data, fds[1] if len(fds) > 1 else -1)
