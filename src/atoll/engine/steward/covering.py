"""A workspace over its source, for root's walls that a steward keeps: an overlay, or a view where there are rules."""

from __future__ import annotations

import contextlib
import json
import os

from ...errors import Unsupported
from .. import idmap, kernel, places, views
from ..layout import Layout
from ..places import Rules
from ..settings import Settings
from ..views import curator, zones
from .wall import StartFailed

RULES = "rules"
"""Beside the layers: the rules under which the newest of them is written."""


def covered(
    source: str, uppers: list[str], rules: Rules | None, *, uid: int, home: str, pinned: bool
) -> tuple[int, str | None]:
    """The workspace as a detached mount, the source below these layers, the newest first; and the recipe of its view.

    Only for who is aside, in an empty directory of its own but for `t`, where the layers are. It is `pinned` for a
    kernel in user space: what may not be written to is then a read-only mount as well, as it is for an ordinary user.
    gVisor (of 2022 at least) heeds the sticky bit of a directory where a file is removed, and not where another takes
    its place. What it makes of a mount it has to leave to the host.

    Raises:
        StartFailed: the rules cannot be enforced here.
        OSError: the host refuses a mount.
    """
    lowers = [f"t/{name}" for name in uppers[1:]]
    upper, scratch = f"t/{uppers[0]}", f"t/scratch-{uppers[0]}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(scratch, 0o700)
    os.mkdir("m")
    if rules is None:
        os.mkdir("s")
        tree = idmap.mapped_source(source, uid)
        kernel.move_mount(tree, "s")
        os.close(tree)
        places.overlay([*lowers, "s"], upper, scratch, "m", rootless=False)
        return kernel.open_tree("m", recursive=False), None
    try:
        view = _view(source, lowers, rules, uid, home, pinned=pinned)
        try:
            views.mount(view, source=source, lowers=lowers, upper=upper, work=scratch, target="m", uid=uid)
        finally:
            view.close()
    except Unsupported as error:
        raise StartFailed(str(error), "unsupported", error.hint) from None
    return kernel.open_tree("m", recursive=True), view.recipe


def _view(source: str, lowers: list[str], rules: Rules, uid: int, home: str, *, pinned: bool) -> views.View:
    if not lowers and not pinned:
        return curator.obtain(_settings(home), source, rules.rules(), rules.ignore)
    if not lowers:
        return _pinned(views.compile_tree(source, rules.matcher(), rules.ignores()), 0)
    os.mkdir("merged")
    views.merge(source=source, lowers=lowers, target="merged", rootless=False, uid=uid)
    tree = views.compile_tree("merged", rules.matcher(), rules.ignores())
    kernel.umount("merged")
    return _pinned(tree, len(lowers)) if pinned else views.prepare(tree, recipe="A", covers=len(lowers))


def _pinned(tree: views.Tree, covers: int) -> views.View:
    plan = zones.plan(tree)
    return views.prepare(tree, recipe="A", covers=covers)._replace(zones=plan.zones, unenforced=plan.unenforced)


def stage(path: str) -> None:
    """Make an empty directory to mount things in, and go there; only for who is aside. Raises OSError."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    kernel.mount("stage", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700,size=1m")
    os.chdir(path)


def uppers_in(top: str) -> list[str]:
    """The layers over a source that are in a directory, by name, newest first."""
    names = [name for name in os.listdir(top) if name.startswith("upper-")]
    return sorted(names, key=lambda name: int(name.rpartition("-")[2]), reverse=True)


def new_upper(top: str, uid: int) -> str:
    """One more of them, empty; its name."""
    found = uppers_in(top)
    name = f"upper-{int(found[0].rpartition('-')[2]) + 1 if found else 0}"
    os.mkdir(f"{top}/{name}", 0o755)
    os.chown(f"{top}/{name}", uid, uid)
    return name


def layers(top: str, uid: int, rules: Rules | None) -> list[str]:
    """Those in a directory, newest first, for a workspace that is made now; at least one.

    What was written under other rules is judged by those that hold now: so it lies below a new one, and not on top.
    """
    found = uppers_in(top)
    wanted = json.dumps(rules, sort_keys=True)
    if not found or _read(f"{top}/{RULES}") != wanted:
        found = [new_upper(top, uid), *found]
    with open(f"{top}/{RULES}", "w", encoding="utf-8") as file:
        file.write(wanted)
    return found


def forget_rules(top: str) -> None:
    """Nobody may take the newest layer for one that was written under the rules of the last start."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{top}/{RULES}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _settings(home: str) -> Settings:
    """As far as a curator of views needs them, whom walls share."""
    where = Layout(home)
    where.make()
    return Settings(where, rootless=False, hierarchy=None, landlock=0, filter_code=b"", template="", python="",
        python_path=(), resolver="", has_loop=True, recipe="A")  # fmt: skip
