"""What the trusted side knows of a nursery, and the rules that it holds it to.

A nursery is one process with one thread, at every moment but while a sandbox is forked; then it is two. With a control
group the kernel sees to that; without one it is looked at, before the nursery is used and with each birth. Births
take turns, so that nobody but the newborn can be new. A nursery that breaks a rule is condemned: it is killed, and
all that came of it with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import cgroups, inspection
from .inspection import Broken, Identity
from .settings import Settings, started_at

# What has ended may still be on its way out, and what was handed on is closed a moment later.
_PATIENCE = 1.0
_LOOKS = 2000.0


class Inmate(NamedTuple):
    """A nursery's process, and the channel on which it gets its orders."""

    pid: int
    started: int
    orders: Identity


class Ward:
    def __init__(self, settings: Settings) -> None:
        self._box = settings.layout.box(settings.nursery)
        self._group = cgroups.Group(settings.hierarchy, settings.nursery) if settings.hierarchy else None

    @property
    def look_every(self) -> float | None:
        """In milliseconds; never where the kernel counts."""
        return None if self._group else _LOOKS

    def open(self, pid: int, orders: Identity) -> Inmate:
        """Write down who it is: from now on it can be asked."""
        os.mkdir(f"{self._box}/born", 0o700)
        with open(f"{self._box}/inmate.new", "w", encoding="ascii") as file:
            json.dump([pid, started_at(pid), *orders], file)
        os.rename(f"{self._box}/inmate.new", f"{self._box}/inmate")
        return self.inmate()

    def inmate(self) -> Inmate:
        """Raises: FileNotFoundError: there is no nursery any more."""
        with open(f"{self._box}/inmate", encoding="ascii") as file:
            pid, started, *orders = json.load(file)
        return Inmate(pid, started, (orders[0], orders[1]))

    @contextlib.contextmanager
    def turn(self) -> Iterator[Inmate]:
        """One birth at a time; the nursery may fork once in it.

        Raises:
            FileNotFoundError: there is no nursery any more.
            Broken: afterwards it is not as it must be.
        """
        fd = os.open(self._box, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            inmate = self.inmate()
            if self._group:
                self._group.limit_processes(2)
            try:
                yield inmate
            finally:
                self.check(inmate)
        finally:
            os.close(fd)

    def enroll(self, newborn: int) -> None:
        """Where no control group counts: a child of the nursery's that it may have."""
        if self._group is None:
            name = f"{newborn}-{started_at(newborn)}"
            os.close(os.open(f"{self._box}/born/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def check(self, inmate: Inmate, *also: Identity) -> None:
        """That it is alone, and has nothing open but the channel on which it is asked, and what is named here.

        Raises:
            Broken: it is not, or has.
        """
        if self._group:
            # First, so that who is alone stays alone.
            self._group.limit_processes(1)
        try:
            _settle(lambda: self.check_alone(inmate.pid))
            _settle(lambda: inspection.check_descriptors(inmate.pid, {inmate.orders, *also}))
        except (FileNotFoundError, ProcessLookupError):
            return  # it is dead, and breaks no rule

    def check_alone(self, pid: int) -> None:
        inspection.check_threads(pid)
        if self._group:
            # A count, not a list: nobody slips through it by forking.
            if self._group.count() != 1 or self._group.processes() != [str(pid)]:
                raise Broken(f"the packages have left {self._group.count() - 1} processes or threads")
            return
        if strangers := inspection.children(pid) - self._known():
            raise Broken(f"the packages have left {len(strangers)} processes")

    def _known(self) -> set[int]:
        known = set()
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(f"{self._box}/born"):
                pid, _, started = name.partition("-")
                try:
                    alive = started_at(int(pid)) == int(started)
                except (FileNotFoundError, ProcessLookupError):
                    alive = False
                if alive:
                    known.add(int(pid))
                else:
                    os.unlink(f"{self._box}/born/{name}")
        return known

    def condemn(self, reason: str) -> None:
        """Kill it and all that came of it; its nurse tells why."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"{self._box}/condemned", "w", encoding="utf-8") as file:
                file.write(reason)
            if self._group:
                self._group.kill()
            inmate = self.inmate()
            if started_at(inmate.pid) == inmate.started:
                os.kill(inmate.pid, signal.SIGKILL)

    def sentence(self) -> str:
        """Why it was condemned; empty if it was not."""
        try:
            with open(f"{self._box}/condemned", encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""


def _settle(check: Callable[[], None]) -> None:
    """Have a look, and another while what is wrong may be going away."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return check()
        except Broken:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.0005)
