"""The writable places of a sandbox, as mounts that are attached nowhere yet.

They are built in a mount namespace aside, which is gone afterwards, and moved from there into the sandbox's own: when
it is made, and again whenever what lies below its top changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import Unsupported
from ..policy.ignores import Ignores
from ..policy.permissions import from_json
from ..policy.rules import Matcher
from ..types import PathRule
from . import disk, idmap, jail, kernel, layout, views
from .layers import Layers, Stack
from .settings import BirthFailed, Settings
from .views import curator

MOUNTED = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


class Rules(NamedTuple):
    """What of a source is seen, and what may be done with it; both as JSON."""

    permissions: dict[str, Any] | None
    ignore: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: dict[str, Any]) -> Rules | None:
        """Those of a job; None where it has none."""
        if job["permissions"] is None and not job["ignore"]:
            return None
        return cls(job["permissions"], tuple(job["ignore"]))

    def rules(self) -> tuple[PathRule, ...]:
        """Where there are only ignores, the rest can be written to."""
        return (PathRule("**", "write"),) if self.permissions is None else from_json(self.permissions).rules

    def matcher(self) -> Matcher:
        return Matcher(self.rules())

    def ignores(self) -> Ignores | None:
        return Ignores(self.ignore) if self.ignore else None


class Ground(NamedTuple):
    """What the places of one sandbox stand on.

    Args:
        device: of the top's disk; empty where the top is directories of the box.
        uid: of the sandbox's user on the host; None without root, where there is only one.
        source: the directory of the host that is the workspace at first.
        view: of the source, where there are rules and one was prepared for them before.
    """

    sandbox: str
    stack: Stack
    device: str
    uid: int | None
    source: str | None
    workdir: str
    rules: Rules | None = None
    view: views.View | None = None


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """In a mount namespace that is gone afterwards: what is mounted in it is nobody else's."""
    back = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        yield
    finally:
        kernel.setns(back, kernel.CLONE_NEWNS)
        os.close(back)


def build(settings: Settings, ground: Ground) -> tuple[dict[str, int], views.View | None]:
    """Detached mounts of the places, by where they belong, and the view of the source, if there are rules.

    Raises:
        OSError: a layer is gone, or the host refuses a mount.
        BirthFailed: the rules cannot be enforced here.
    """
    with aside():
        builder = Builder(settings, ground)
        try:
            return builder.trees(), builder.view
        except Unsupported as error:
            raise BirthFailed(str(error), "unsupported") from None


def attach(trees: dict[str, int]) -> None:
    """Put detached mounts where they belong, in the current mount namespace."""
    for target, tree in trees.items():
        kernel.mount_setattr(tree, MOUNTED, recursive=True)
        kernel.move_mount(tree, target)


class Builder:
    """Mounts what is needed below a directory of the box. Only for use aside.

    Everything has a short name relative to there: overlayfs takes no more than a page of options.
    """

    def __init__(self, settings: Settings, ground: Ground) -> None:
        self._settings = settings
        self._ground = ground
        self.view = ground.view
        self._layers = Layers(settings.layout)
        self._box = settings.layout.box(ground.sandbox)
        self._names: dict[str, str] = {}
        self._mapper = idmap.Mapper()
        stage = f"{self._box}/stage"
        with contextlib.suppress(FileExistsError):
            os.mkdir(stage, 0o700)
        kernel.mount("stage", stage, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700,size=1m")
        os.chdir(stage)
        self._mount_top()

    def trees(self) -> dict[str, int]:
        found = {target: self.tree(place) for place, target in layout.targets(self._ground.workdir).items()}
        os.chdir("/")
        self._mapper.close()
        return found

    def uppers(self) -> list[str]:
        """The directories that hold what was changed in the workspace, newest first."""
        name = self._directory("work")
        return [f"t/{name}", *(f"{self._mounted(layer)}/{name}" for layer in self._ground.stack.work)]

    def tree(self, place: str) -> int:
        """One place as a detached mount."""
        if place == "work" and self._ground.source is not None and self._ground.rules is not None:
            return self._view_tree(self._ground.source, self._ground.rules)
        name = self._directory(place)
        lowers = [f"{self._mounted(layer)}/{name}" for layer in getattr(self._ground.stack, place)]
        if place == "work" and self._ground.source is not None:
            lowers.append(self._mount_source(self._ground.source))
        if not lowers:
            return kernel.open_tree(f"t/{name}", recursive=False)
        target = f"m-{place}"
        os.mkdir(target)
        overlay(lowers, f"t/{name}", self._scratch(place), target, rootless=self._ground.uid is None)
        return kernel.open_tree(target, recursive=False)

    def _view_tree(self, source: str, rules: Rules) -> int:
        """The workspace as the rules show it."""
        os.mkdir("m-work")
        lowers = [self._layer(layer) for layer in self._ground.stack.work]
        uid = self._ground.uid
        if self.view is None:
            self.view = self._prepare(source, rules, lowers)
        views.mount(
            self.view,
            source=source,
            lowers=lowers,
            upper="t/upper",
            work=self._scratch("work"),
            target="m-work",
            uid=uid,
            mapper=self._mapper,
        )
        return kernel.open_tree("m-work", recursive=True)

    def _prepare(self, source: str, rules: Rules, lowers: list[str | views.Layer]) -> views.View:
        recipe = self._settings.recipe
        if recipe is None or recipe == "D":
            raise Unsupported(
                "Path permissions need overlayfs, which this host does not let atoll mount.", hint=views.WITHOUT_RULES
            )
        if not lowers:
            return curator.obtain(self._settings, source, rules.rules(), rules.ignore)
        os.mkdir("merged")
        views.merge(
            source=source,
            lowers=lowers,
            target="merged",
            rootless=self._ground.uid is None,
            uid=self._ground.uid,
            mapper=self._mapper,
        )
        tree = views.compile_tree("merged", rules.matcher(), rules.ignores())
        kernel.umount("merged")
        return views.prepare(tree, recipe=recipe, covers=len(lowers))

    def _layer(self, layer: str) -> str | views.Layer:
        path = f"{self._mount_layer(layer)}/upper"
        return path if self._ground.uid is None else views.Layer(path, self._layers.about(layer)["uid"])

    def _directory(self, place: str) -> str:
        """What a place is called in a top or in a layer."""
        return "upper" if place == "work" and self._ground.source is not None else place

    def _scratch(self, place: str) -> str:
        """A directory for overlayfs itself, beside the top's. An overlay that is going away may still have the last."""
        path = f"t/scratch-{place}-{self._ground.stack.top}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        return path

    def _mount_top(self) -> None:
        os.mkdir("t")
        if self._ground.device:
            kernel.mount(self._ground.device, "t", "ext4", jail.DISK_FLAGS, "")
        else:
            _bind(self._box, "t")
        self._own_top()
        jail.make_writable("t", self._ground.uid)

    def _own_top(self) -> None:
        """Show the top's files as the sandbox's user's, who is another one each time that it is made or resumed."""
        uid = self._ground.uid
        try:
            owner = os.stat("t/work").st_uid
        except FileNotFoundError:
            return
        if uid is None or owner in (views.STRANGER, uid):
            return
        tree = kernel.open_tree("t", recursive=False)
        try:
            # Overlayfs makes whiteouts, and its own directory, as the stranger.
            self._mapper.map_mount(tree, {views.STRANGER: views.STRANGER, owner: uid})
        except OSError:
            if self._ground.device:
                raise
            self._give_away(uid)  # a state directory on a file system that cannot be mapped
        else:
            self._layers.set_owner(self._ground.sandbox, self._ground.stack.top, owner)
            kernel.umount("t", kernel.MNT_DETACH)
            kernel.move_mount(tree, "t")
        finally:
            os.close(tree)

    def _give_away(self, uid: int) -> None:
        """Make the top's files another user's; nobody works with them yet. Raises OSError."""
        import subprocess

        there = [f"t/{name}" for name in layout.WRITABLE if os.path.isdir(f"t/{name}")]
        done = subprocess.run(["/bin/chown", "-RhP", f"{uid}:{uid}", *there], capture_output=True, check=False)
        if done.returncode != 0:
            raise OSError(f"the sandbox's files cannot be given to its new user: {os.fsdecode(done.stderr).strip()}")

    def _mounted(self, layer: str) -> str:
        """Where a layer is mounted, its files shown as the sandbox's user's."""
        name = self._mount_layer(layer)
        owner, uid = self._layers.about(layer)["uid"], self._ground.uid
        if uid is None or owner == uid:
            return name
        shown = f"{name}-mapped"
        if not os.path.isdir(shown):
            os.mkdir(shown)
            tree = kernel.open_tree(name, recursive=False)
            # What overlayfs itself makes, such as whiteouts, is the stranger's, too.
            self._mapper.map_mount(tree, {views.STRANGER: views.STRANGER, owner: uid})
            kernel.move_mount(tree, shown)
            os.close(tree)
        return shown

    def _mount_layer(self, layer: str) -> str:
        """Where a layer is mounted as it is."""
        if layer in self._names:
            return self._names[layer]
        name = self._names[layer] = str(len(self._names))
        os.mkdir(name)
        path = self._layers.path(layer)
        if os.path.exists(f"{path}/disk"):
            with disk.shared(f"{path}/disk") as device:
                kernel.mount(device, name, "ext4", jail.DISK_FLAGS, "")
        else:
            _bind(path, name)
        return name

    def _mount_source(self, source: str) -> str:
        if self._ground.uid is None:
            return source
        os.mkdir("s")
        tree = idmap.mapped_source(source, self._ground.uid)
        kernel.move_mount(tree, "s")
        os.close(tree)
        return "s"


def overlay(lowers: list[str], upper: str, scratch: str, target: str, *, rootless: bool) -> None:
    """Mount an overlay. Raises OSError."""
    escaped = ":".join(map(jail.escape, lowers))
    options = f"lowerdir={escaped},upperdir={upper},workdir={scratch},index=off"
    options += ",userxattr" if rootless else ",redirect_dir=nofollow"
    try:
        kernel.mount("workspace", target, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    except OSError as error:
        if rootless and error.errno == errno.EINVAL:
            raise OSError(errno.EINVAL, jail.SOMETHING_MOUNTED % lowers[-1]) from error
        raise


def _bind(source: str, target: str) -> None:
    tree = kernel.open_tree(source, recursive=False)
    try:
        kernel.move_mount(tree, target)
    finally:
        os.close(tree)
