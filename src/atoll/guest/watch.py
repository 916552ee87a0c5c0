"""The operation `watch`: changes below a path, told as they happen."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import Dict, Generator, List, Optional, Set

from . import inotify
from .arguments import Arguments
from .channel import Channel
from .inotify import Happening, Inotify
from .jobs import GO_ON, WAIT, Job, Part, Steps
from .loop import IN, Loop
from .machine import Machine
from .paths import Root
from .refusal import Refused
from .walking import Step, Walk
from .writing import TEMPORARY

Event = Dict[str, str]

_MEANINGS = (
    (inotify.CREATE | inotify.MOVED_TO, "created"),
    (inotify.DELETE, "removed"),
    (inotify.MOVED_FROM, "moved"),
    (inotify.MODIFY | inotify.ATTRIB, "modified"),
)


class WatchJob(Job):
    """Closing it is how it ends, and therefore a success."""

    def close(self) -> None:
        self.channel.end({})
        super().close()


def start(machine: Machine, channel: Channel, arguments: Arguments) -> WatchJob:
    path = machine.root.absolute(arguments.text("path"))
    return WatchJob(machine.loop, channel, lambda job: _watch(machine, job, arguments), path)


def _watch(machine: Machine, job: Job, arguments: Arguments) -> Steps:
    path, recursive = arguments.text("path"), arguments.flag("recursive")
    watcher = _Watcher(machine.root, path, recursive)
    try:
        yield from watcher.begin()
        job.channel.send_event(b'{"ready":true}')
        yield from _follow(machine.loop, job, watcher)
    finally:
        machine.loop.forget(watcher.fd)
        watcher.close()
    return {}


def _follow(loop: Loop, job: Job, watcher: _Watcher) -> Part:
    """For ever. While the client takes no events the kernel keeps them, and says so when it cannot any more."""

    def ready(_mask: int) -> None:
        loop.forget(watcher.fd)
        job.wake()

    while True:
        events = yield from watcher.read()
        if events:
            yield from job.tell("events", events)
        elif events is None:
            loop.watch(watcher.fd, IN, ready)
            yield WAIT


class _Watcher:
    """Watches a directory, and with `recursive` all below it, or a single file.

    It keeps nothing of that open: the kernel tells of the end of a file only when nobody holds it.
    """

    def __init__(self, root: Root, path: str, recursive: bool) -> None:
        self._root = root
        self._path = path
        self._base = root.absolute(path)
        self._is_directory = stat.S_ISDIR(root.stat(path).st_mode)
        self._recursive = recursive and self._is_directory
        self._inotify = Inotify()
        self._paths: Dict[int, str] = {}
        self._events: List[Event] = []
        self._scanned: Set[str] = set()

    @property
    def fd(self) -> int:
        return self._inotify.fd

    def close(self) -> None:
        self._inotify.close()

    def begin(self) -> Part:
        fd = self._root.open(self._path, os.O_RDONLY | os.O_DIRECTORY if self._is_directory else os.O_PATH)
        try:
            yield from self._add(fd, "")
        finally:
            os.close(fd)
        self._events.clear()
        self._scanned.clear()

    def read(self) -> Generator[int, None, Optional[List[Event]]]:
        """What has happened; None when nothing has."""
        happenings = self._inotify.read()
        if not happenings:
            self._scanned.clear()
            return None
        for happening in happenings:
            yield from self._take(happening)
            yield GO_ON
        events, self._events = self._events, []
        return events

    def _add(self, fd: int, path: str) -> Part:
        """Watch what is open as `fd`; below it, tell of everything that came before the watch did."""
        self._paths[self._inotify.add(fd)] = path
        if not self._recursive:
            return
        with Walk(os.dup(fd), forgiving=True) as walk:
            for step in walk.entries():
                if step is None:
                    yield GO_ON
                    continue
                below = posixpath.join(path, step.path)
                self._scanned.add(below)
                self._tell("created", below)
                if step.is_directory:
                    self._add_step(step, below)

    def _add_step(self, step: Step, path: str) -> None:
        try:
            fd = os.open(step.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=step.directory)
        except FileNotFoundError:
            return
        try:
            self._paths[self._inotify.add(fd)] = path
        except PermissionError:
            self._tell("overflow", path)  # what happens in there cannot be seen
        finally:
            os.close(fd)

    def _take(self, happening: Happening) -> Part:
        mask, path = happening.mask, self._paths.get(happening.watch)
        if mask & inotify.OVERFLOW:
            self._tell("overflow", "")
        elif mask & inotify.IGNORED:
            self._paths.pop(happening.watch, None)
        elif path is not None and happening.name:
            if not happening.name.startswith(TEMPORARY):
                name = happening.name.decode("utf-8", "surrogateescape")
                yield from self._named(mask, posixpath.join(path, name))
        elif path == "":
            self._top_changed(mask)

    def _named(self, mask: int, path: str) -> Part:
        for bits, meaning in _MEANINGS:
            if mask & bits and not (meaning == "created" and path in self._scanned):
                self._tell(meaning, path)
        if not (self._recursive and mask & inotify.IS_DIRECTORY):
            return
        if mask & inotify.MOVED_FROM:
            self._forget_below(path)
        elif mask & (inotify.CREATE | inotify.MOVED_TO) and path not in self._scanned:
            yield from self._add_new(path)

    def _add_new(self, path: str) -> Part:
        try:
            fd = self._root.open(posixpath.join(self._path, path), os.O_RDONLY | os.O_DIRECTORY, follow=False)
        except Refused as refusal:
            if refusal.number != errno.ENOENT:
                self._tell("overflow", path)
            return
        try:
            yield from self._add(fd, path)
        finally:
            os.close(fd)

    def _forget_below(self, path: str) -> None:
        for watch, watched in list(self._paths.items()):
            if watched == path or watched.startswith(path + "/"):
                self._inotify.remove(watch)
                del self._paths[watch]

    def _top_changed(self, mask: int) -> None:
        if mask & inotify.DELETE_SELF:
            self._tell("removed", "")
        elif mask & inotify.MOVE_SELF:
            self._tell("moved", "")
        elif mask & (inotify.MODIFY | inotify.ATTRIB) and not self._is_directory:
            self._tell("modified", "")

    def _tell(self, meaning: str, path: str) -> None:
        event = {"type": meaning, "path": posixpath.join(self._base, path) if path else self._base}
        if not self._events or self._events[-1] != event:
            self._events.append(event)
