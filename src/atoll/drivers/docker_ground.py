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
from ..engine.places import Rules
from ..engine.removal import remove_tree
from ..engine.settings import BirthFailed
from ..engine.steward.covering import covered, forget_rules, layers, new_upper, stage, uppers_in
from ..engine.steward.wall import FILES, StartFailed

PLACES = ("work", "home", "tmp")
_TOP = "top"
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
                        uppers = layers("t", self._job["uid"], self.rules)
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
            forget_rules("t")
            new = new_upper("t", self._job["uid"])
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
            stage(place(self._box, "stage"))
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
        uid, home, pinned = self._job["uid"], self._job["home"], self._job["attached"]
        return covered(self._job["source"], uppers, rules, uid=uid, home=home, pinned=pinned)


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
