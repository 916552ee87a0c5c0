"""Mounting a view: the sandbox's own layer, those of its snapshots, the mask, and below it what has the content."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import Unsupported
from .. import idmap, jail, kernel
from . import zones
from .mask import OWN
from .view import FIXED, STRANGER, View

_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# Nothing that is found in a layer leads to another path, and a directory of a lower layer cannot be renamed (EXDEV).
_NO_REDIRECTS = "redirect_dir=nofollow,index=off,metacopy=off"
# The kernel takes one page of options.
_LONGEST = 3900


class Layer(NamedTuple):
    """A directory that was the upper layer of a sandbox of root's whose user was `uid`; another sees it as its own."""

    path: str
    uid: int


def mount(
    view: View,
    *,
    source: str | int,
    lowers: Sequence[str | int | Layer] = (),
    upper: str,
    work: str,
    target: str,
    uid: int | None = None,
    mapper: idmap.Mapper | None = None,
) -> None:
    """Mount a view at `target`, a directory, in this mount namespace, which is the caller's own.

    `source` is the tree that the view was made of; `lowers` are upper layers of earlier snapshots, newest first;
    `upper` and `work` are for this mount alone. `uid` is the id of the sandbox's user on the host, needed as root.
    A `mapper` saves time for who has more to mount.

    Raises:
        OSError: a mount was refused.
        Unsupported: this kernel cannot do it, or there are too many layers.
    """
    with contextlib.ExitStack() as opened:
        maps = mapper or opened.enter_context(contextlib.closing(idmap.Mapper()))
        names = _LayerNames(opened, uid, maps)
        kept = len(lowers) - view.covers
        shown = [names.open(layer) for layer in (*lowers[:kept], *_show_mask(view, target, uid, maps))]
        content = [names.open(lower) for lower in lowers[kept:]]
        if not view.farm:
            content.append(names.open(source))
        _own_root(view, upper, uid)
        layers = "::".join([":".join(shown), *content])
        options = f"lowerdir={layers},upperdir={names.open(upper)},workdir={names.open(work)}"
        _mount_overlay(view, target, options, source)
    zones.cover(target, view.zones)


def merge(
    *,
    source: str | int,
    lowers: Sequence[str | int | Layer] = (),
    target: str,
    rootless: bool,
    uid: int | None = None,
    mapper: idmap.Mapper | None = None,
) -> None:
    """Mount the source with the layers of a sandbox over it at `target`, to be looked at by `compile_tree`.

    No rule holds here: it is for the judge's eyes only, before a change of rules.

    Raises:
        OSError: a mount was refused.
    """
    with contextlib.ExitStack() as opened:
        names = _LayerNames(opened, uid, mapper or opened.enter_context(contextlib.closing(idmap.Mapper())))
        layers = [names.open(lower) for lower in (*lowers, source)]
        if len(layers) == 1:
            kernel.mount(layers[0], target, None, kernel.MS_BIND)
            return
        options = f"lowerdir={':'.join(layers)},{_NO_REDIRECTS}" + (",userxattr" if rootless else "")
        _check_length(options)
        kernel.mount("workspace", target, "overlay", _FLAGS | kernel.MS_RDONLY, options)


def _show_mask(view: View, target: str, uid: int | None, mapper: idmap.Mapper) -> list[str]:
    """The layers of the mask. A layer must have a path on older kernels; the target, soon covered, serves."""
    if view.farm:
        return [view.farm]
    tree = _own_copy(view)
    try:
        kernel.move_mount(tree, target)
    finally:
        os.close(tree)
    if view.mapped:
        _map_own(f"{target}/{OWN}", uid, mapper)
    return [f"{target}/{part}" for part in view.parts]


def _map_own(path: str, uid: int | None, mapper: idmap.Mapper) -> None:
    if uid is None:
        raise ValueError("the id of the sandbox's user is needed to mount this view")
    tree = kernel.open_tree(path, recursive=False)
    try:
        mapper.map_mount(tree, {STRANGER: STRANGER, FIXED: uid})
        kernel.move_mount(tree, path)
    finally:
        os.close(tree)


def _own_copy(view: View) -> int:
    try:
        return view.clone()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Before Linux 6.15 what is attached nowhere cannot be copied; it can be used itself, once.
        return os.dup(view.mask)


class _LayerNames:
    """Names of layers by descriptor: a path could hold what overlayfs takes for a separator, and would be seen."""

    def __init__(self, opened: contextlib.ExitStack, uid: int | None, mapper: idmap.Mapper) -> None:
        self._opened = opened
        self._uid = uid
        self._mapper = mapper

    def open(self, layer: str | int | Layer) -> str:
        if isinstance(layer, int):
            return f"/proc/self/fd/{layer}"
        fd = self._foreign(layer) if isinstance(layer, Layer) else os.open(layer, _DIRECTORY)
        self._opened.callback(os.close, fd)
        return f"/proc/self/fd/{fd}"

    def _foreign(self, layer: Layer) -> int:
        if self._uid is None or layer.uid == self._uid:
            return os.open(layer.path, _DIRECTORY)
        tree = kernel.open_tree(layer.path, recursive=False)
        try:
            # What overlayfs itself makes, such as whiteouts, is root's, too.
            self._mapper.map_mount(tree, {STRANGER: STRANGER, layer.uid: self._uid})
        except BaseException:
            os.close(tree)
            raise
        return tree


def _own_root(view: View, upper: str, uid: int | None) -> None:
    """The root of an overlay has the owner and mode of its upper layer."""
    if view.recipe == "A":
        owner = uid if view.owned else STRANGER
        if owner is None:
            raise ValueError("the id of the sandbox's user is needed to mount this view")
        os.chown(upper, owner, owner)
    os.chmod(upper, view.mode)


def _mount_overlay(view: View, target: str, options: str, source: str | int) -> None:
    _check_length(options)
    if view.recipe != "A":
        try:
            kernel.mount("workspace", target, "overlay", _FLAGS, f"{options},{_NO_REDIRECTS},userxattr")
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise OSError(errno.EINVAL, jail.SOMETHING_MOUNTED % source) from error
            raise
        return
    try:
        kernel.mount("workspace", target, "overlay", _FLAGS, f"{options},{_NO_REDIRECTS}")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Before Linux 6.16 content is only looked for elsewhere when copies without content may be made, too: such
        # a copy in a layer of the sandbox would pass for the content of what a new mask shows.
        if view.covers:
            raise Unsupported("Changing the rules of a sandbox that has changed files needs Linux 6.16.") from error
        kernel.mount("workspace", target, "overlay", _FLAGS, f"{options},index=off,metacopy=on")


def _check_length(options: str) -> None:
    if len(options) > _LONGEST:
        raise Unsupported("This sandbox has too many snapshots in a row for one mount.")
