"""Exchanging what a sandbox stands on while it runs: for a snapshot, a rollback, other permissions, or to discard.

What was its top is put aside as a layer and a new, empty top is laid over it. The old mounts are made read-only by
the kernel, which refuses while anybody has a file open to write to; so whoever still holds on to them, by a directory
or a descriptor, can change nothing that was put aside. Then the new mounts take their place, and every process goes on
in the directory of the same name. All this happens while the sandbox is held, which takes a few milliseconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import cgroups, disk, holders, jail, kernel, layout, merging, parting, places, usage
from .holding import Hold
from .layers import DISK, MOST, Layers, Stack, copy_base, left, new_layer, new_top
from .places import Ground
from .settings import BirthFailed, Settings
from .tracing import settle
from .views import View

# How long all processes may take to die, the whole exchange, and how long to wait between two looks; in seconds.
_DEATH, _EXCHANGE, _MOMENT = 5.0, 10.0, 0.0005
# How often to begin again for one that writes meanwhile.
_TRIES = 3


class Sandbox(NamedTuple):
    """A running one, as its keeper knows it."""

    id: str
    first: int
    uid: int | None
    source: str | None
    workdir: str
    quota: int
    loop: bool
    rules: places.Rules | None = None
    view: View | None = None
    group: cgroups.Group | None = None

    def processes(self) -> list[int]:
        """All that run behind its wall. Contexts that its keeper has made are below no other of them."""
        return self.group.members() if self.group else usage.descendants(self.first)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(layout.targets(self.workdir).values())


class Wish(NamedTuple):
    """What it shall stand on.

    Args:
        kind: "push" to put its top aside and go on from there; "rules" for the same with other rules; "discard" for the
            same with the workspace as it was at first; "replace" to go on from `stack` and forget the top.
        force: end those that hold a file open to write to, rather than to refuse.
        name: of the snapshot that what is put aside becomes; `facts` are kept with it.
    """

    kind: str
    stack: Stack | None = None
    force: bool = False
    rules: places.Rules | None = None
    name: str = ""
    facts: Mapping[str, Any] = {}  # never changed


class _Written(Exception):
    """Somebody has a file open to write to, in a place of the sandbox. Never leaves this module."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class _Grown(Exception):
    """It has written, before it was held, what the new top was meant to have room for. Never leaves this module."""


class Mason:
    """Does the work for one wish."""

    def __init__(self, settings: Settings, sandbox: Sandbox, wish: Wish) -> None:
        self._settings = settings
        self._sandbox = sandbox
        self._wish = wish
        self._layers = Layers(settings.layout)
        self._box = settings.layout.box(sandbox.id)
        self._before = self._layers.stack(sandbox.id)
        self._layer = new_layer()
        self._forgotten: dict[str, int] = {}
        self._old: list[int] = []
        self._room = 0

    def work(self) -> tuple[Stack, View | None]:
        """Gives the stack that it stands on now, and the view of its source.

        Raises:
            BirthFailed: somebody holds a file open to write to, or it cannot be held; all is as it was.
            OSError: the host refused something; all is as it was.
        """
        with self._layers.naming():
            self._catch_up()
            after = self._plan()
            self._check_length(after)
            self._check_room(after)
            self._check_name()
            try:
                self._set_aside(after)
                view = self._lay(after)
            except BaseException:
                self._undo(after)
                raise
            self._write_down_size()
            self._name(after)
            merged = merging.read(self._settings.layout, self._sandbox.id)
            if merged is not None and merged.into in after.layers:
                merging.forget(self._settings.layout, self._sandbox.id)
            if after.aside:
                after = self._forget(after)
        return after, view

    def _write_down_size(self) -> None:
        """Of what was put aside: what its disk will take on the host's is not known before all is written to it."""
        if self._sandbox.loop and self._old:
            about = self._layers.about(self._layer)
            self._layers.describe(self._layer, **{**about, "size": usage.used(self._old[-1])})

    def _check_length(self, after: Stack) -> None:
        if len(after.layers) > MOST:
            raise BirthFailed(
                f"This sandbox stands on {MOST} layers already; try again in a moment, when they are fewer.", "busy"
            )

    def _check_room(self, after: Stack) -> None:
        """Raises BirthFailed, where directories are the top: it would stand on more than it may have."""
        if not self._sandbox.loop:
            own = usage.disk(self._box, enough=self._sandbox.quota) if self._layer in after.layers else 0
            left(self._sandbox.quota, own + self._others(after))

    def _catch_up(self) -> None:
        """Finish what somebody was killed over who had written it down and not done it yet."""
        if self._before and self._wish.kind != "replace" and not self._is_laid(self._before):
            self._layers.settle(self._sandbox.id, self._before)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._box}/{self._before.top}")
            self._lay(self._before)

    def _is_laid(self, stack: Stack) -> bool:
        """Whether it stands on these, by the name of the top's scratch directory."""
        with open(f"/proc/{self._sandbox.first}/mountinfo", encoding="utf-8", errors="replace") as file:
            return any(f"scratch-tmp-{stack.top}," in line for line in file)

    def _check_name(self) -> None:
        if self._wish.name and os.path.lexists(self._layers.snapshot_path(self._wish.name)):
            raise self._taken()

    def _taken(self) -> BirthFailed:
        return BirthFailed(f"There is already a snapshot {self._wish.name!r}; delete it first.", "invalid_input")

    def _name(self, after: Stack) -> None:
        if self._wish.name:
            manifest = {**self._wish.facts, "name": self._wish.name, "stack": after.to_json()}
            try:
                self._layers.add_snapshot(self._wish.name, manifest)
            except FileExistsError:  # somebody else was faster since the check; the sandbox goes on as well on these
                raise self._taken() from None

    def _plan(self) -> Stack:
        top = new_top()
        if self._wish.kind == "replace":
            if self._wish.stack is None:
                raise ValueError("nothing to replace it by")
            self._layers.check(self._wish.stack)
            return self._wish.stack._replace(top=top, aside=self._layer)
        pushed = merging.shortened(self._before, self._merged()).pushed(self._layer, top)
        return pushed._replace(work=()) if self._wish.kind == "discard" else pushed

    def _merged(self) -> merging.Merged | None:
        """What may take the place of several layers: not below a view, which is made for the layers that it has."""
        if self._sandbox.rules is not None or self._wish.rules is not None:
            return None
        return merging.read(self._settings.layout, self._sandbox.id)

    def _set_aside(self, after: Stack) -> None:
        """The stack first: who is interrupted here has both, and `Layers.settle` finishes it.

        What is to be forgotten is put aside, too.
        """
        owner = self._layers.owner(self._sandbox.id, self._before.top)
        uid = self._sandbox.uid if owner is None else owner
        self._layers.make(self._layer, uid=uid, sandbox=self._sandbox.id, top=self._before.top)
        copy_base(self._box, self._layers.path(self._layer))
        self._layers.set_stack(self._sandbox.id, after)
        self._layers.settle(self._sandbox.id, after)

    def _undo(self, after: Stack) -> None:
        """Nothing was laid: what was put aside is the top again."""
        if os.path.isdir(self._layers.path(self._layer)):
            self._layers.restore(self._layer, self._sandbox.id, self._before)
        self._layers.set_stack(self._sandbox.id, self._before)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._box}/{after.top}")

    def _lay(self, after: Stack) -> View | None:
        for _ in range(_TRIES):
            try:
                return self._lay_once(after)
            except _Grown:
                os.unlink(f"{self._box}/{after.top}")
        raise BirthFailed("The sandbox writes faster than its disk can be measured; try again in a moment.", "busy")

    def _lay_once(self, after: Stack) -> View | None:
        device, held = self._new_disk(after) if self._sandbox.loop else ("", -1)
        sandbox = self._sandbox
        trees: dict[str, int] = {}
        try:
            rules = self._wish.rules if self._wish.kind == "rules" else sandbox.rules
            ground = Ground(
                sandbox.id, after, device, sandbox.uid, sandbox.source, sandbox.workdir, rules, self._same_view(after)
            )
            trees, view = places.build(self._settings, ground)
            self._exchange(trees, after)
        finally:
            for fd in (*trees.values(), held):
                if fd >= 0:
                    os.close(fd)
        return view

    def _same_view(self, after: Stack) -> View | None:
        """The view that it has, if that will do: with the same rules, over the same layers that it was made of."""
        view = self._sandbox.view
        if view is None or self._wish.kind in ("rules", "discard"):
            return None  # the source may have changed since, and is to be seen as it is
        covered = self._before.work[len(self._before.work) - view.covers :]
        return view if after.work[len(after.work) - view.covers :] == covered else None

    def _new_disk(self, after: Stack) -> tuple[str, int]:
        """With what lies below it, it takes no more than the sandbox's limit.

        Raises:
            BirthFailed: nothing is left of that.
        """
        image = f"{self._box}/{after.top}"
        quota = self._sandbox.quota
        taken = self._others(after)
        own = usage.mounted_disk(self._sandbox.first, "/tmp") if self._layer in after.layers else 0
        size = left(quota, taken + own)
        self._room = quota - size - taken
        disk.copy_sparse(disk.prepare(f"{self._settings.layout.top}/disks", size), image)
        return disk.attach(image)

    def _others(self, after: Stack) -> int:
        """Bytes that lie below the new top, but for what is put aside now."""
        return sum(self._layers.size(layer) for layer in after.layers if layer != self._layer)

    def _exchange(self, trees: dict[str, int], after: Stack) -> None:
        if self._wish.kind == "replace":
            _end_all(self._sandbox)
            self._reach_forgotten()
        until = time.monotonic() + _EXCHANGE
        while True:
            try:
                return self._exchange_held(trees, after, until)
            except _Written as written:
                self._refuse_or_end(written.place)
            if time.monotonic() > until - _EXCHANGE / 2:
                raise BirthFailed("The sandbox's processes open files faster than they can be ended.", "busy")

    def _exchange_held(self, trees: dict[str, int], after: Stack, until: float) -> None:
        sandbox = self._sandbox
        with Hold(
            sandbox.processes, first=sandbox.first, group=sandbox.group, until=until, force=self._wish.force
        ) as hold:
            directories = {pid: path for pid in hold.processes if (path := self._directory(pid)) is not None}
            with jail.inside(sandbox.first):
                self._seal()
                self._check_size(after)
                for target in trees:
                    kernel.umount(target, kernel.MNT_DETACH)
                places.attach(trees)
            for pid, path in directories.items():
                self._move(hold, pid, path)

    def _refuse_or_end(self, place: str) -> None:
        """Raises BirthFailed, unless those that hold files open shall be ended, and are."""
        found = holders.writers(self._sandbox.processes(), place)
        others = [each for each in found if each.outside != self._sandbox.first]
        if not found:
            raise BirthFailed(f"Something in {place} is open to write to, so it cannot be put aside now.", "busy")
        if not self._wish.force or not others:
            raise BirthFailed(
                f"Process {found[0].pid} ({found[0].command}) has {found[0].path} open to write to, so it cannot be "
                "put aside now; wait until it is closed, or give force=True to end that process.",
                "busy",
            )
        for each in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.outside, signal.SIGKILL)

    def _move(self, hold: Hold, pid: int, path: str) -> None:
        """One that cannot be moved stays where nothing can be changed any more, and finds that out."""
        for place in (path, self._sandbox.workdir):
            try:
                hold.move(pid, place)
                return
            except ProcessLookupError:
                return
            except OSError:
                continue

    def _directory(self, pid: int) -> str | None:
        """Where a process is, if that is in one of the places."""
        try:
            path = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return None
        below = any(path == target or path.startswith(f"{target}/") for target in self._sandbox.targets)
        return path if below else None

    def _seal(self) -> None:
        """Make the old mounts read-only, all of them or none.

        They stay open until `clean_up`: unmounting one for good waits until all that was written to it is on the disk.

        Raises:
            _Written: somebody has a file open to write to.
        """
        sealed: list[int] = []
        try:
            for target in self._sandbox.targets:
                sealed.append(os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                kernel.mount_setattr(sealed[-1], kernel.MOUNT_ATTR_RDONLY, recursive=True)
        except OSError as error:
            for each in sealed[:-1]:
                kernel.mount_setattr(each, 0, recursive=True, clear=kernel.MOUNT_ATTR_RDONLY)
            for each in sealed:
                os.close(each)
            if error.errno == errno.EBUSY:
                raise _Written(self._sandbox.targets[len(sealed) - 1]) from None
            raise
        self._old += sealed

    def _check_size(self, after: Stack) -> None:
        """Raises _Grown, with nothing sealed any more: what was the top has less room beside it than was thought."""
        kept = self._sandbox.loop and self._layer in after.layers
        if not kept or usage.used(self._old[-1]) <= self._room:
            return
        for _ in self._sandbox.targets:
            kernel.mount_setattr(self._old[-1], 0, recursive=True, clear=kernel.MOUNT_ATTR_RDONLY)
            os.close(self._old.pop())
        raise _Grown

    def _reach_forgotten(self) -> None:
        """Hold on to the disk that is to be forgotten: who lets go of it last waits until it is written."""
        if self._sandbox.loop:
            image = f"{self._layers.path(self._layer)}/{DISK}"
            self._forgotten = parting.reach(self._settings.layout, self._sandbox.id, [image])

    def _forget(self, after: Stack) -> Stack:
        """Nobody names any more what was put aside for that."""
        forgotten = after._replace(aside="")
        self._layers.set_stack(self._sandbox.id, forgotten)
        for fd in self._forgotten.values():
            disk.shut_down_at(fd)
        return forgotten

    def clean_up(self) -> None:
        """What need not be waited for: let go of what it stood on, and remove what nobody needs any more."""
        for fd in (*self._forgotten.values(), *self._old):
            os.close(fd)
        if self._wish.kind == "replace":
            self._layers.collect()
            return
        self._layers.size(self._layer)
        if self._sandbox.rules is None and settle():  # who was not stopped in time goes on when this process ends
            os.nice(10)
            merging.merge(self._settings.layout, self._sandbox.id, self._sandbox.uid, self._sandbox.source)


def _end_all(sandbox: Sandbox) -> None:
    """Kill every process but the first."""
    deadline = time.monotonic() + _DEATH
    while inside := [pid for pid in sandbox.processes() if pid != sandbox.first and not usage.has_ended(pid)]:
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise BirthFailed("The sandbox's processes start others faster than they can be ended.", "busy")
        time.sleep(_MOMENT)
