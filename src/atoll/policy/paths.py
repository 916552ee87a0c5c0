"""Paths as text: what can be one at all, on the host and inside a sandbox."""

from __future__ import annotations

import os

from ..errors import InvalidInput, InvalidPath
from .text import kind_of, shown

MAX_PATH = 4095
MAX_NAME = 255

_KERNEL_TREES = ("/proc", "/sys", "/dev")


def check_path(path: object, what: str = "path") -> str:
    """`path` as text that a kernel would take; bytes that are no UTF-8 are lone surrogates.

    Raises:
        InvalidPath: it is empty, too long, or holds a NUL byte.
        InvalidInput: it is no path at all.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is {kind_of(path)}; give text or a pathlib.Path.")
    if not text:
        raise InvalidPath(f"{what} is empty; give a path.")
    if "\0" in text:
        raise InvalidPath(f"{what} holds a NUL byte, which no path can.")
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidPath(f"{what} holds half a surrogate pair, which stands for no byte.") from None
    if len(raw) > MAX_PATH:
        raise InvalidPath(f"{what} has {len(raw)} bytes; the kernel takes at most {MAX_PATH}.")
    if any(len(name) > MAX_NAME for name in raw.split(b"/")):
        raise InvalidPath(f"{what} has a part of more than {MAX_NAME} bytes: {shown(text)}.")
    return text


def host_path(path: object, what: str) -> str:
    """An absolute, normalised path on the host. Whether it exists is for the driver to see.

    Raises:
        InvalidPath: as `check_path`, or it is relative to a directory that is gone.
    """
    text = check_path(path, what)
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise InvalidPath(
            f"{what} is relative, and the current directory no longer exists; make it absolute."
        ) from None


def workspace_path(path: object, what: str = "workdir") -> str:
    """An absolute path inside the sandbox where a workspace can be, without doubled or trailing slashes.

    Raises:
        InvalidPath: it is relative, climbs with "..", or is a place that the kernel keeps for itself.
    """
    text = check_path(path, what)
    if not text.startswith("/"):
        raise InvalidPath(f"{what} is {shown(text)}; make it absolute, such as '/workspace'.")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise InvalidPath(f"{what} is {shown(text)}; write it without '..'.")
    clean = "/" + "/".join(names)
    if clean == "/" or clean.startswith(tuple(tree + "/" for tree in _KERNEL_TREES)) or clean in _KERNEL_TREES:
        raise InvalidPath(f"{what} is {clean!r}, where no workspace can be; choose a directory such as '/workspace'.")
    return clean


def in_workspace(path: str, workdir: str) -> str:
    """A path inside the sandbox as audits write it: relative to the workspace, or absolute where it is not in it.

    Symbolic links are not looked at.
    """
    whole = os.path.normpath(os.path.join(workdir, path))
    if whole == workdir:
        return ""
    return whole[len(workdir) + 1 :] if whole.startswith(f"{workdir}/") else whole
