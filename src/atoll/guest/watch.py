"""The operation `watch`: changes below a path, told as they happen."""

from __future__ import annotations

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
from .paths import as_bytes, open_beneath
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
    top = machine.root.open(path, os.O_PATH)
    try:
        watcher = _Watcher(top, machine.root.absolute(path), recursive)
        try:
            yield from watcher.begin()
            job.channel.send_event(b'{"ready":true}')
            yield from _follow(machine.loop, job, watcher)
        finally:
            machine.loop.forget(watcher.fd)
            watcher.close()
    finally:
        os.close(top)
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
    """Watches a directory, and with `recursive` all below it, or a single file."""

    def __init__(self, top: int, base: str, recursive: bool) -> None:
        self._top = top
        self._base = base
        self._is_directory = stat.S_ISDIR(os.fstat(top).st_mode)
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
        yield from self._add(self._top, "")
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
        with Walk(open_beneath(fd, b".", os.O_RDONLY | os.O_DIRECTORY), forgiving=True) as walk:
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
            fd = open_beneath(self._top, as_bytes(path), os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        except OSError:
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
