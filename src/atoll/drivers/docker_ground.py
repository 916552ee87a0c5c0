"""What a sandbox's places stand on when root makes it: a disk of its own, and a view of its source.

It is mounted nowhere but in the container, into which root puts it when there is one: it goes with it, whoever is
killed. Where a runtime lets nobody in, as one with a kernel of its own, the engine has to find it by path. Then it is
among this machine's mounts while the container starts; who copies these meanwhile keeps a disk busy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine import disk, idmap, jail, kernel, layout, places, views
from ..engine.layout import Layout
from ..engine.places import Rules
from ..engine.removal import remove_tree
from ..engine.settings import BirthFailed, Settings
from ..engine.steward.wall import FILES, StartFailed
from ..engine.views import curator
from ..errors import Unsupported

PLACES = ("work", "home", "tmp")
_TOP = "top"
BASE = "base"
RECORDS = (BASE, "base.applied", "base.codebase.applied")
"""Where it is written how the source was, beside the disk; see `review`."""
_DISK = "disk"
_RELEASE, _LONG_RELEASE = 2.0, 10.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOUNTED = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


class Ground:
    """Of one sandbox.

    Args:
        job: has `home`, `uid`, `disk` (bytes), `source`, `permissions` and `ignore`.

    Attributes:
        top: a descriptor of the root of its disk; -1 while there is none.
        rules: about its source, if there are any; `recipe` is how they are enforced.
    """

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        self._box = box
        self._job = job
        self._image = f"{box}/{FILES}/{_DISK}"
        self.rules = Rules.of(dict(job))
        self.recipe: str | None = None
        self.top = -1
        self._trees: dict[str, int] = {}

    def lay(self) -> None:
        """Have all of it ready: for `enter`, or where the engine finds it.

        Raises:
            StartFailed: the rules cannot be enforced here.
            OSError: the host refuses a mount, or its disk is full.
        """
        self.leave()
        device, held = self._attached() if self._job["disk"] else ("", -1)
        try:
            self._trees = self._built(device)
        finally:
            if held >= 0:
                os.close(held)
        top = self._trees.pop(_TOP)
        try:
            self.top = os.open(".", _FOLDER, dir_fd=top)
        finally:
            os.close(top)
        if self._job["attached"]:
            self._show()

    def _show(self) -> None:
        for name, tree in self._trees.items():
            path = place(self._box, name)
            os.makedirs(path, mode=0o700, exist_ok=True)
            kernel.mount_setattr(tree, _MOUNTED, recursive=True)
            kernel.move_mount(tree, path)

    def enter(self, first: int) -> None:
        """Put it into a container, whose first process waits for that. Raises OSError."""
        with jail.inside(first):
            targets = layout.targets(self._job["workdir"])
            places.attach({target: self._trees[name] for name, target in targets.items()})
        self.lift()

    def _attached(self) -> tuple[str, int]:
        """The device of its disk, and a descriptor to hold until it is mounted."""
        if not os.path.exists(self._image):
            try:
                empty = disk.prepare(f"{self._job['home']}/docker/.disks", self._job["disk"])
            except BirthFailed as error:
                raise StartFailed(str(error), error.code) from None
            disk.copy_sparse(empty, self._image)
        try:
            disk.await_release(self._image, _RELEASE if self._job["attached"] else _LONG_RELEASE)
        except OSError:
            if not self._job["attached"]:
                raise
            # Somebody has a copy of the host's mounts with this one among them. Nobody writes there any more.
            disk.copy_sparse(self._image, self._image)
        return disk.attach(self._image)

    def lift(self) -> None:
        """The container has it: take it away from here."""
        for tree in self._trees.values():
            os.close(tree)
        self._trees.clear()
        if self._job["attached"]:
            lift(self._box)

    def leave(self) -> None:
        """Let go of it: the container has ended."""
        self.lift()
        if self.top >= 0:
            os.close(self.top)
            self.top = -1

    def forget(self) -> None:
        """The same, and whatever is not on the disk yet need not get there."""
        if self.top >= 0:
            with contextlib.suppress(OSError):
                disk.shut_down_at(self.top)
        self.leave()

    def settle(self) -> None:
        """All that was written is in the box."""
        if self.top >= 0:
            kernel.syncfs(self.top)

    def used(self) -> int:
        """Bytes on the disk."""
        found = os.fstatvfs(self.top)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def uppers(self) -> list[str]:
        """The layers of the workspace over its source, by name, newest first."""
        return uppers_in(f"/proc/self/fd/{self.top}")

    def _built(self, device: str) -> dict[str, int]:
        """Detached mounts of the places, and of the disk."""
        trees: dict[str, int] = {}
        with self._aside(device):
            try:
                for name in PLACES:
                    if name == "work" and self._job["source"] is not None:
                        uppers = uppers_in("t") or [_new_upper("t", self._job["uid"])]
                        trees[name], self.recipe = self._covered(uppers, self.rules)
                    else:
                        trees[name] = kernel.open_tree(f"t/{name}", recursive=False)
                trees[_TOP] = kernel.open_tree("t", recursive=False)
            except BaseException:
                for tree in trees.values():
                    os.close(tree)
                raise
        return trees

    def rebuilt(self, rules: Rules | None, *, afresh: bool) -> tuple[int, str | None]:
        """The workspace of a running sandbox with a new layer on top, as a detached mount, and the recipe of its view.

        Those that it had are below it; `afresh` leaves them out.

        Raises:
            StartFailed, OSError: nothing was made.
        """
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(disk.shared(self._image)) if self._job["disk"] else ""
            stack.enter_context(self._aside(device))
            before = [] if afresh else uppers_in("t")
            new = _new_upper("t", self._job["uid"])
            try:
                return self._covered([new, *before], rules)
            except BaseException:
                remove_tree(f"{os.getcwd()}/t/{new}")
                raise

    def drop(self, uppers: list[str]) -> None:
        """Remove layers that nobody needs any more."""
        for name in uppers:
            for path in (name, f"scratch-{name}"):
                with contextlib.suppress(FileNotFoundError):
                    remove_tree(f"/proc/self/fd/{self.top}/{path}")

    @contextlib.contextmanager
    def _aside(self, device: str) -> Iterator[None]:
        """Among mounts that nobody else sees, in a directory where the disk is mounted as `t`."""
        uid = self._job["uid"]
        with places.aside():
            os.chdir(_stage(self._box))
            try:
                os.mkdir("t")
                if device:
                    kernel.mount(device, "t", "ext4", jail.DISK_FLAGS, "")
                else:
                    kernel.mount(f"{self._box}/{FILES}", "t", None, kernel.MS_BIND)
                for name in PLACES:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(f"t/{name}", 0o755)
                        os.chown(f"t/{name}", uid, uid)
                _show_as(uid)
                yield
            finally:
                os.chdir("/")

    def _covered(self, uppers: list[str], rules: Rules | None) -> tuple[int, str | None]:
        """The workspace as a detached mount, the source below these layers; and the recipe. Only for who is aside."""
        source, uid = self._job["source"], self._job["uid"]
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
            view = self._view(source, lowers, rules)
            try:
                views.mount(view, source=source, lowers=lowers, upper=upper, work=scratch, target="m", uid=uid)
            finally:
                view.close()
        except Unsupported as error:
            raise StartFailed(str(error), "unsupported", error.hint) from None
        return kernel.open_tree("m", recursive=True), view.recipe

    def _view(self, source: str, lowers: list[str], rules: Rules) -> views.View:
        if not lowers:
            return curator.obtain(_settings(self._job["home"]), source, rules.rules(), rules.ignore)
        os.mkdir("merged")
        views.merge(source=source, lowers=lowers, target="merged", rootless=False, uid=self._job["uid"])
        tree = views.compile_tree("merged", rules.matcher(), rules.ignores())
        kernel.umount("merged")
        return views.prepare(tree, recipe="A", covers=len(lowers))


def _show_as(uid: int) -> None:
    """What began as the files of another sandbox is its user's on the disk, and this one's in sight."""
    was = os.stat("t/home").st_uid
    if was == uid:
        return
    tree = kernel.open_tree("t", recursive=False)
    try:
        idmap.map_mount(tree, {views.STRANGER: views.STRANGER, was: uid})
        kernel.move_mount(tree, "t")
    finally:
        os.close(tree)


def place(box: str, name: str) -> str:
    """Where a part of the ground is while a container starts."""
    return f"{box}/ground/{name}"


def lift(box: str) -> None:
    """Take the ground of a box away from this machine's mounts."""
    for name in PLACES:
        with contextlib.suppress(OSError):
            while True:
                kernel.umount(place(box, name), kernel.MNT_DETACH)


def check(source: str | None, rules: Rules | None) -> None:
    """Raises Unsupported: this kernel shows no rules."""
    if source is not None and rules is not None and not views.can_overlay(rootless=False):
        raise Unsupported(
            "Path permissions need overlayfs, which this host does not let atoll mount.", hint=views.WITHOUT_RULES
        )


def _stage(box: str) -> str:
    """A directory to mount things in; only for who is aside."""
    path = place(box, "stage")
    os.makedirs(path, mode=0o700, exist_ok=True)
    kernel.mount("stage", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700,size=1m")
    return path


def uppers_in(top: str) -> list[str]:
    """The layers over a source that are in a directory, by name, newest first."""
    names = [name for name in os.listdir(top) if name.startswith("upper-")]
    return sorted(names, key=lambda name: int(name.rpartition("-")[2]), reverse=True)


def _new_upper(top: str, uid: int) -> str:
    found = uppers_in(top)
    name = f"upper-{int(found[0].rpartition('-')[2]) + 1 if found else 0}"
    os.mkdir(f"{top}/{name}", 0o755)
    os.chown(f"{top}/{name}", uid, uid)
    return name


def _settings(home: str) -> Settings:
    """As far as a curator of views needs them, whom walls share."""
    where = Layout(home)
    where.make()
    return Settings(where, rootless=False, hierarchy=None, landlock=0, filter_code=b"", template="", python="",
        python_path=(), resolver="", has_loop=True, recipe="A")  # fmt: skip
