"""Layers: what sandboxes have written and will not change again, shared by snapshots, forks and running sandboxes.

```
<home>/jail/layers/<layer>/disk          as root: the disk that was a sandbox's top when it was put aside
<home>/jail/layers/<layer>/{work,upper,tmp,home}   else: these directories
<home>/jail/layers/<layer>/about         whose files they are, and the digest of a layer that was exported or imported
<home>/jail/boxes/<id>/stack             what lies below the top of a sandbox; not there while nothing does
<home>/jail/snapshots/<name>             a snapshot: a stack, and what the client wants to know of it
```

A layer that no stack and no snapshot names is garbage. Whoever is about to name one holds the lock shared until it is
named, and who removes garbage holds it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from . import usage
from .layout import Layout
from .removal import remove_tree
from .settings import BirthFailed, new_id

PREFIX = "ly-"
DISK = "disk"
# What a layer holds where there is no disk. The scratch directory of overlayfs belongs to the top alone.
_DIRECTORIES = ("work", "tmp", "home", "upper")
# Overlayfs takes 500 layers and a page of options; long before that every look-up is slow.
MOST = 60
# The smallest disk that can be made.
SMALLEST = 1 << 20
# In how many steps the disks over layers become smaller: an empty file system is kept for each size.
_STEPS = 64
_BLOCK = 4096


class Stack(NamedTuple):
    """What is below the top of a sandbox: the layers of each of its places, newest first.

    `top` names the file of the top's disk in its box, so that one step exchanges both. `aside` is the layer that what
    was the top before is still to be brought to, to be forgotten there.
    """

    work: tuple[str, ...] = ()
    tmp: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    top: str = DISK
    aside: str = ""

    @property
    def layers(self) -> tuple[str, ...]:
        """All of them, newest first, each once."""
        return tuple(dict.fromkeys((*self.work, *self.tmp, *self.home)))

    @property
    def named(self) -> tuple[str, ...]:
        """All that must not be removed."""
        return (*self.layers, self.aside) if self.aside else self.layers

    def pushed(self, layer: str, top: str) -> Stack:
        """With what was the top as one more layer."""
        return Stack((layer, *self.work), (layer, *self.tmp), (layer, *self.home), top)

    def __bool__(self) -> bool:
        return bool(self.layers)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._asdict().items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Stack:
        """Raises ValueError for what no `to_json` wrote."""
        try:
            places = [tuple(map(_checked, value[place])) for place in ("work", "tmp", "home")]
            top = str(value["top"])
            aside = _checked(value["aside"]) if value.get("aside") else ""
        except (KeyError, TypeError) as error:
            raise ValueError(f"no stack of layers: {error!r}") from None
        if "/" in top:
            raise ValueError(f"{top!r} is no name of a disk")
        return cls(places[0], places[1], places[2], top, aside)


def _checked(name: object) -> str:
    if not isinstance(name, str) or not name.startswith(PREFIX) or "/" in name:
        raise ValueError(f"{name!r} is no name of a layer")
    return name


def new_layer() -> str:
    return PREFIX + new_id().partition("-")[2]


def new_top() -> str:
    return f"{DISK}-{os.urandom(4).hex()}"


class Layers:
    """Those of one state directory."""

    def __init__(self, places: Layout) -> None:
        self._places = places

    def path(self, layer: str) -> str:
        return f"{self._places.layers}/{layer}"

    def snapshot_path(self, name: str) -> str:
        return f"{self._places.snapshots}/{name}"

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """No layer is removed meanwhile."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        self._places.make()
        fd = os.open(f"{self._places.layers}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
            yield
        finally:
            os.close(fd)

    def stack(self, sandbox: str) -> Stack:
        """Raises ValueError when what is written of it cannot be read."""
        try:
            with open(f"{self._places.box(sandbox)}/stack", encoding="utf-8") as file:
                return Stack.from_json(json.load(file))
        except FileNotFoundError:
            return Stack()

    def set_stack(self, sandbox: str, stack: Stack) -> None:
        write_whole(f"{self._places.box(sandbox)}/stack", stack.to_json())

    def set_owner(self, sandbox: str, top: str, owner: int) -> None:
        """Write down whose the files of a top are, when that is not the user who the sandbox runs as now."""
        write_whole(f"{self._places.box(sandbox)}/{top}.owner", {"uid": owner})

    def owner(self, sandbox: str, top: str) -> int | None:
        """Whose they are, if that was written down."""
        try:
            with open(f"{self._places.box(sandbox)}/{top}.owner", encoding="utf-8") as file:
                return int(json.load(file)["uid"])
        except FileNotFoundError:
            return None

    def make(self, layer: str, **facts: Any) -> None:
        """An empty one, for the top of a sandbox."""
        os.mkdir(self.path(layer), 0o711)
        self.describe(layer, **facts)

    def settle(self, sandbox: str, stack: Stack) -> Stack:
        """Bring what was the top of a sandbox to the layer that it is now, as far as that was not done yet.

        Gives the stack without what is forgotten by now.
        """
        for layer in stack.named:
            about = self.about(layer)
            if about.get("sandbox") == sandbox and "top" in about:
                box = self._places.box(sandbox)
                for name in (about["top"],) if os.path.exists(f"{box}/{about['top']}") else _DIRECTORIES:
                    self._bring(f"{box}/{name}", f"{self.path(layer)}/{DISK if name == about['top'] else name}")
                self.describe(layer, **{key: value for key, value in about.items() if key != "top"})
        return stack._replace(aside="")

    def _bring(self, source: str, target: str) -> None:
        if os.path.exists(source) and not os.path.exists(target):
            os.rename(source, target)

    def restore(self, layer: str, sandbox: str, stack: Stack) -> None:
        """Undo `make` and `settle`: the layer is the top of a sandbox again, which stands on `stack`."""
        box = self._places.box(sandbox)
        # Who is interrupted here has the other stack still, and `settle` brings everything back once more.
        with contextlib.suppress(FileNotFoundError):
            self.describe(layer, **{**self.about(layer), "top": stack.top})
        for name in _DIRECTORIES:
            if os.path.exists(f"{self.path(layer)}/{name}"):
                if os.path.isdir(f"{box}/{name}"):
                    remove_tree(f"{box}/{name}")
                os.rename(f"{self.path(layer)}/{name}", f"{box}/{name}")
        if os.path.exists(f"{self.path(layer)}/{DISK}"):
            os.rename(f"{self.path(layer)}/{DISK}", f"{box}/{stack.top}")
        self.set_stack(sandbox, stack)
        self.remove(layer)

    def remove(self, layer: str) -> None:
        """For good. First of all nobody can name it any more, should this be interrupted."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(f"{self.path(layer)}/about")
        remove_tree(self.path(layer))

    def check(self, stack: Stack) -> None:
        """Raises FileNotFoundError: a layer of it is gone."""
        for layer in stack.layers:
            self.about(layer)

    def about(self, layer: str) -> dict[str, Any]:
        """Raises FileNotFoundError: there is no such layer."""
        with open(f"{self.path(layer)}/about", encoding="utf-8") as file:
            found = json.load(file)
        return found if isinstance(found, dict) else {}

    def describe(self, layer: str, **facts: Any) -> None:
        """Write down what is known of a layer."""
        write_whole(f"{self.path(layer)}/about", facts)

    def taken(self, stack: Stack) -> int:
        """Bytes that the layers of a stack take. What they lie over, such as a source, does not count.

        Raises:
            FileNotFoundError: one of them is gone.
        """
        return sum(map(self.size, stack.layers))

    def size(self, layer: str) -> int:
        """Bytes that a layer takes, which is looked up once: it does not change.

        Raises:
            FileNotFoundError: there is no such layer.
        """
        about = self.about(layer)
        if "size" not in about:
            about["size"] = self._measured(layer)
            if "top" not in about:  # it is not there yet
                self.describe(layer, **about)
        return int(about["size"])

    def _measured(self, layer: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(f"{self.path(layer)}/{DISK}").st_blocks * 512
        try:
            return usage.disk(self.path(layer))
        except usage.TooDeep:
            return 1 << 62  # nobody needs this but to go beyond a limit

    def add_snapshot(self, name: str, manifest: dict[str, Any]) -> None:
        """Raises FileExistsError: there is one of that name."""
        draft = f"{self._places.snapshots}/.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            write_whole(draft, manifest)
            os.link(draft, self.snapshot_path(name))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)

    def snapshot(self, name: str) -> dict[str, Any]:
        """Raises FileNotFoundError: there is none of that name; ValueError: it cannot be read."""
        with open(self.snapshot_path(name), encoding="utf-8") as file:
            found = json.load(file)
        if not isinstance(found, dict):
            raise ValueError("no manifest of a snapshot")  # noqa: TRY004 - what is wrong is the file
        return found

    def snapshots(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._places.snapshots) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def remove_snapshot(self, name: str) -> None:
        """Raises FileNotFoundError: there is none of that name."""
        os.unlink(self.snapshot_path(name))

    def collect(self) -> list[str]:
        """Remove every layer that nobody names; gives their names.

        Does nothing while somebody is naming one, and while something that may name one cannot be read.
        """
        if not os.path.isdir(self._places.layers):
            return []
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                garbage = self.garbage()
                for layer in garbage:
                    self.remove(layer)
                self._remove_drafts()
        except (BlockingIOError, ValueError):
            return []
        return garbage

    def doom(self, sandbox: str) -> list[str]:
        """Forget what a sandbox stands on. Gives the layers that nobody else names, and that nobody can any more."""
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                doomed = self.garbage(besides=sandbox)
                for name in (f"{self._places.box(sandbox)}/stack", *(f"{self.path(each)}/about" for each in doomed)):
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                        os.unlink(name)
        except (BlockingIOError, ValueError):
            return []
        return doomed

    def garbage(self, besides: str = "") -> list[str]:
        """The layers that nobody names, or nobody but the sandbox `besides`. Only for who holds the lock alone.

        Raises:
            ValueError: something that may name one cannot be read.
        """
        named: set[str] = set()
        for sandbox in os.listdir(self._places.boxes):
            # What is being removed stands beside its box, and is what hostile code made.
            if sandbox != besides and ".removing." not in sandbox:
                with contextlib.suppress(NotADirectoryError):
                    named.update((*self.stack(sandbox).named, *self._merged(sandbox)))
        for name in self.snapshots():
            with contextlib.suppress(FileNotFoundError):
                named.update(Stack.from_json(self.snapshot(name)["stack"]).layers)
        entries = os.listdir(self._places.layers)
        return [name for name in entries if name.partition(".removing.")[0] not in named and name.startswith(PREFIX)]

    def _merged(self, sandbox: str) -> list[str]:
        """The layer that others are being merged into; see `merging`."""
        try:
            with open(f"{self._places.box(sandbox)}/merged", encoding="utf-8") as file:
                return [_checked(json.load(file)["into"])]
        except FileNotFoundError:
            return []

    def _remove_drafts(self) -> None:
        """Of snapshots that nobody is writing any more: whoever is holds the lock, too."""
        for name in os.listdir(self._places.snapshots):
            if name.startswith("."):
                os.unlink(f"{self._places.snapshots}/{name}")


def below(box: str) -> int:
    """Bytes that the layers below the top of a sandbox take, which has this box; 0 where there are none."""
    top, wall = os.path.split(os.path.dirname(os.path.dirname(box)))
    layers = Layers(Layout(top, wall))
    try:
        return layers.taken(layers.stack(os.path.basename(box)))
    except (FileNotFoundError, ValueError):
        return 0  # it is just being made, or removed


def left(quota: int, taken: int) -> int:
    """How large a disk may be that is laid over layers which take `taken` bytes, so that all stay within `quota`.

    Up to a 64th of the limit is given away, so that there are few sizes.

    Raises:
        BirthFailed: nothing to speak of is left.
    """
    if taken == 0:
        return quota
    step = max(quota // _STEPS // _BLOCK, 1) * _BLOCK
    size = (quota - taken) // step * step
    if size < SMALLEST:
        raise BirthFailed(
            f"The disk limit of this sandbox is {quota} bytes, of which its snapshots and what it began with take "
            f"{taken}: too little is left to write to. Roll back to an earlier snapshot, or give a larger disk=.",
            "disk_full",
        )
    return size


def standing(places: Layout, sandbox: str, job: Mapping[str, Any]) -> Stack:
    """What lies below the top of one that is being made: if it is resumed what did before, else what its job says.

    Raises:
        BirthFailed: they take all that the sandbox may.
        FileNotFoundError: a layer of it is gone.
        ValueError: it cannot be read.
    """
    layers = Layers(places)
    if job["resume"]:
        with layers.naming():
            stack = layers.stack(sandbox)
            if stack:
                stack = layers.settle(sandbox, stack)
                layers.set_stack(sandbox, stack)
        return stack
    stack = Stack.from_json(job["stack"])
    if stack:
        with layers.naming():
            layers.set_stack(sandbox, stack)
            left(job["quota"], layers.taken(stack))
            for layer in stack.work[:1]:
                copy_base(layers.path(layer), places.box(sandbox))
    return stack


def write_whole(path: str, value: dict[str, Any]) -> None:
    """Write a small file so that others see all of it or what was there before.

    It is not waited for the disk: what it tells of is not there yet either; see `sync`.
    """
    draft = f"{path}.{os.getpid()}.new"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(draft, path)


def copy_base(source: str, target: str) -> None:
    """Bring what was written down about a sandbox's source from its box to a layer, or back; see `review`.

    It may still be being written; what an apply has added to it is each sandbox's own.
    """
    with contextlib.suppress(FileNotFoundError):
        os.link(f"{source}/base", f"{target}/base")
    for name in ("base.applied", "base.codebase.applied"):
        with contextlib.suppress(FileNotFoundError), open(f"{source}/{name}", "rb") as file:
            data = file.read()
            with open(f"{target}/{name}", "wb") as copy:
                copy.write(data)
