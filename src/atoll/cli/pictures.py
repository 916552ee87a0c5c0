"""Pictures that a cell shows, kept as files of the current directory."""

from __future__ import annotations

import os

from ..types import Result
from .output import OutputFailed

_MOST = 10_000


def is_picture(result: Result) -> bool:
    return any(kind in result.data for kind in ("image/png", "image/jpeg", "image/svg+xml", "application/pdf"))


def save(result: Result) -> str:
    """Write a picture to a file of its own, `figure-1.png` or the next number that is free; its name, with sizes.

    Raises:
        OutputFailed: it cannot be written.
    """
    suffix, content = _form(result)
    name = _write(suffix, content)
    pixels = _pixels(content) if suffix == "png" else ""
    return f"{name} ({pixels}{_size(len(content))})"


def _form(result: Result) -> tuple[str, bytes]:
    if (content := result.png) is not None:
        return "png", content
    if (content := result.jpeg) is not None:
        return "jpg", content
    if (drawing := result.svg) is not None:
        return "svg", drawing.encode("utf-8", "replace")
    return "pdf", result.pdf or b""


def _write(suffix: str, content: bytes) -> str:
    """Nothing that is there is replaced, and no link is followed."""
    for number in range(1, _MOST):
        name = f"figure-{number}.{suffix}"
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputFailed(f"The picture cannot be kept as {name}: {error.strerror}.") from error
        with open(fd, "wb") as file:
            file.write(content)
        return name
    raise OutputFailed(f"There are {_MOST - 1} pictures named figure-N.{suffix} here already; move them away.")


def _pixels(png: bytes) -> str:
    """What the header of a PNG says. Nothing but digits comes out of it, whoever wrote it."""
    if png[:8] != b"\x89PNG\r\n\x1a\n" or len(png) < 24:
        return ""
    return f"{int.from_bytes(png[16:20], 'big')}x{int.from_bytes(png[20:24], 'big')}, "


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
