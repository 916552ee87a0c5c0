"""The zygote: a warm, single-threaded process that only makes sandboxes.

It is started on first use, listens on a private socket, and for each request has its stem fork a keeper, or
hands the request to a keeper whose sandbox is already parked behind its wall. Its death harms no sandbox. It
ends itself when it has been idle for long and has no children.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from ..guest import borrowed
from ..guest.fresh import find_own_modules
from . import (
    birthorders,
    cgroups,
    findings,
    inspection,
    kernel,
    layout,
    messages,
    rootfs,
    stem,
    sweep,
    threshold,
)
from .midwife import kind_of
from .nursery import open_nursery
from .rehearsal import rehearse
from .settings import Settings, new_id

IDLE_SECONDS = 300.0
# Enough for the next few requests of each kind; a burst larger than this forks on demand. A closed one is
# finished but for limits and environment, an open one can still be given mounts.
PARKED_CLOSED, PARKED_OPEN = 4, 2
# Refilling while requests still come in would only slow those down.
_QUIET = 0.02
_TURN = 30.0
_PROCESSORS = os.cpu_count() or 1
# A parked sandbox takes about 6 MB: a rush never makes the lots take more than a fortieth of the memory.
_MOST_PARKED = max(4, min(64, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (256 << 20)))
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Lot:
    """Sandboxes of one kind that wait for somebody to want them: a few, more after a rush, fewer again with time."""

    def __init__(self, kind: str, order: bytes, least: int) -> None:
        self.kind = kind
        self.order = order
        self.starting: dict[int, socket.socket] = {}
        self.parked: list[socket.socket] = []
        self.asked = 0
        self.not_before = 0.0
        self._least = self._want = least

    def lacks(self, now: float) -> bool:
        return now >= self.not_before and self.size < self._want

    @property
    def size(self) -> int:
        return len(self.parked) + len(self.starting)

    def grow(self) -> None:
        """After a rush: have as many ready for the next one, within reason."""
        self._want = min(_MOST_PARKED, max(self._want, self.asked))
        self.asked = 0

    def shrink(self) -> list[socket.socket]:
        """After a while without requests; gives the parked ones to let go."""
        self._want = max(self._least, self._want // 2)
        surplus = self.parked[self._want :]
        del self.parked[self._want :]
        return surplus


class Zygote:
    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._stem = stem.plant(settings)
        self._lots = [
            Lot("closed", birthorders.PARK_CLOSED, PARKED_CLOSED),
            Lot("open", birthorders.PARK_OPEN, PARKED_OPEN),
        ]
        self._nursery_ready = False
        self._poll = select.poll()
        self._poll.register(listener.fileno(), _READABLE)
        self._poll.register(self._stem.fileno(), _READABLE)
        if settings.nurse is not None:
            self._poll.register(settings.nurse.fileno(), _READABLE)
        self._clients: dict[int, socket.socket] = {}
        # For each sandbox that is being made for somebody, a pipe that ends when it is.
        self._made: dict[int, None] = {}
        self._last = time.monotonic()
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._reader, _READABLE)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # Whoever outlives the keeper that has made it comes here, and is taken notice of at once.
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        """Serve until idle and childless, or until the socket's name is gone."""
        while True:
            events = self._poll.poll(self._wait() * 1000)
            for fd, _ in events:
                self._handle(fd)
            if events:
                continue
            if self._should_end():
                return
            self._tend(time.monotonic())

    def _tend(self, now: float) -> None:
        """Nothing happens: time to look after the lots."""
        for lot in self._lots:
            lot.grow()
            if now - self._last > _TURN:
                for link in lot.shrink():
                    self._poll.unregister(link.fileno())
                    link.close()
            if self._may_park(lot, now):
                self._park(lot)

    def _may_park(self, lot: Lot, now: float) -> bool:
        """Not while somebody waits for a sandbox, and no more at a time than there are processors."""
        return not self._made and len(lot.starting) < _PROCESSORS and lot.lacks(now)

    def _wait(self) -> float:
        now = time.monotonic()
        if any(self._may_park(lot, now) for lot in self._lots):
            return 0.0 if now - self._last > _QUIET else _QUIET
        return _TURN

    def _should_end(self) -> bool:
        # A state directory that was removed takes its zygote with it.
        if not os.path.exists(self._settings.layout.run):
            return True
        idle = time.monotonic() - self._last > IDLE_SECONDS
        # The stem, and those that are parked.
        return idle and len(inspection.children(os.getpid())) <= 1 + sum(lot.size for lot in self._lots)

    def _handle(self, fd: int) -> None:
        if fd == self._listener.fileno():
            with contextlib.suppress(OSError):
                self._accept()
        elif fd == self._reader:
            self._reap()
        elif fd == self._stem.fileno():
            # It never speaks: it is dead, and a new zygote will plant a new one.
            raise SystemExit(1)
        elif self._settings.nurse is not None and fd == self._settings.nurse.fileno():
            self._hear_nurse(self._settings.nurse)
        elif fd in self._clients:
            self._request(self._clients[fd])
        elif fd in self._made:
            self._made.pop(fd)
            self._poll.unregister(fd)
            os.close(fd)
        else:
            self._hear_of_parked(fd)

    def _hear_nurse(self, nurse: socket.socket) -> None:
        """She says when the nursery can be used, and why it cannot be any more. Without it sandboxes are made all the
        same, with nothing imported."""
        try:
            answer, _ = messages.receive(nurse)
        except (messages.Ended, ValueError):
            answer = {}
        if "ready" in answer:
            self._use_nursery(True)
            return
        self._poll.unregister(nurse.fileno())
        if self._nursery_ready and "failed" not in answer:
            # The next zygote opens a new one.
            raise SystemExit(1)
        self._use_nursery(False)
        sys.stderr.write(f"Packages are not imported ahead: {answer.get('failed', 'their import died')}.\n")
        sys.stderr.flush()

    def _use_nursery(self, ready: bool) -> None:
        """Sandboxes that are parked were made with the other one."""
        if ready == self._nursery_ready:
            return
        self._nursery_ready = ready
        lot = self._lots[0]
        lot.order = birthorders.PARK_NURSED if ready else birthorders.PARK_CLOSED
        lot.not_before = 0.0
        for link in lot.parked:
            self._poll.unregister(link.fileno())
            link.close()
        lot.parked.clear()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if messages.peer_uid(client) not in (0, os.getuid()):
            client.close()
            return
        self._clients[client.fileno()] = client
        self._poll.register(client.fileno(), _READABLE)
        # A client speaks at once; most requests can be served without another turn of the loop.
        self._request(client)

    def _request(self, client: socket.socket) -> None:
        client.setblocking(False)
        try:
            request, fds = messages.receive(client)
        except BlockingIOError:
            return
        except (messages.Ended, ValueError):
            self._close_client(client)
            return
        client.setblocking(True)
        for fd in fds:
            os.close(fd)
        self._last = time.monotonic()
        self._serve(client, request)
        self._close_client(client)

    def _close_client(self, client: socket.socket) -> None:
        self._poll.unregister(client.fileno())
        del self._clients[client.fileno()]
        client.close()

    def _serve(self, client: socket.socket, request: dict[str, Any]) -> None:
        job = request.get("create")
        if request.get("shutdown"):
            # The parked ones see their link close and go.
            raise SystemExit(0)
        if not isinstance(job, dict):
            with contextlib.suppress(OSError):
                messages.send(client, {"error": {"code": "unsupported", "message": "An unknown request."}})
            return
        kind = kind_of(job, self._settings)
        lot = next((lot for lot in self._lots if lot.kind == kind), None)
        if lot:
            lot.asked += 1
        nursed = self._nursery_ready and kind != "none" and job["network"] == "none"
        # Of the open ones none has imported anything: forking one from the nursery is quicker than that.
        if lot and (kind == "closed" or not nursed) and self._hand_over(lot, job, client):
            return
        reader, writer = os.pipe2(os.O_CLOEXEC)
        order = birthorders.Order(
            birthorders.MAKE_NURSED if nursed else birthorders.MAKE,
            job["resume"] or new_id(),
            resumes=bool(job["resume"]),
            own_network=job["network"] != "host",
        )
        with open(os.memfd_create("job", os.MFD_CLOEXEC), "wb", buffering=0) as file:
            file.write(messages.encode(job))
            stem.ask(self._stem, order, client.fileno(), writer, file.fileno())
        os.close(writer)
        self._made[reader] = None
        self._poll.register(reader, _READABLE)

    def _hand_over(self, lot: Lot, job: dict[str, Any], client: socket.socket) -> bool:
        while lot.parked:
            link = lot.parked.pop(0)
            self._poll.unregister(link.fileno())
            with link:
                try:
                    messages.send(link, job, client.fileno())
                except OSError:
                    continue
            return True
        return False

    def _park(self, lot: Lot) -> None:
        ours, theirs = messages.pair()
        with theirs:
            stem.ask(self._stem, birthorders.Order(lot.order, new_id()), theirs.fileno())
        lot.starting[ours.fileno()] = ours
        self._poll.register(ours.fileno(), _READABLE)

    def _hear_of_parked(self, fd: int) -> None:
        """A keeper that was to be parked says how it went, or a parked one died."""
        for lot in self._lots:
            if link := lot.starting.pop(fd, None):
                try:
                    answer, _ = messages.receive(link)
                except (messages.Ended, ValueError):
                    answer = {}
                if "parked" in answer:
                    lot.parked.append(link)
                    return
                # The next request will be told the reason by its own keeper.
                lot.not_before = time.monotonic() + _TURN
            else:
                link = next((each for each in lot.parked if each.fileno() == fd), None)
                if link is None:
                    continue
                lot.parked.remove(link)
            self._poll.unregister(fd)
            link.close()
            return

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        with contextlib.suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                os.waitpid(found.si_pid, 0)
                if found.si_status != 0:
                    sweep.sweep(self._settings)


def _private_mounts(rootless: bool) -> None:
    """A mount namespace of our own for the template; mounts that the host makes later still arrive."""
    if rootless and not threshold.crossed:
        threshold.enter()
    elif not rootless:
        kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)


def prepare(home: str, tag: str, environment: str = "") -> Settings:
    """Find out what this host offers and build the template root, with an environment of packages if there is one.

    Raises:
        OSError: the host refuses a namespace or a mount.
    """
    places = layout.Layout(home)
    rootless = threshold.is_rootless()
    hierarchy = cgroups.find()
    cgroups.leave_callers(hierarchy)
    _private_mounts(rootless)
    template = f"{places.run}/root-{tag}"
    os.makedirs(template, mode=0o711, exist_ok=True)
    rootfs.populate(template, resolver=findings.resolver(), environment=environment)
    rootfs.seal(template)
    return findings.find_out(places, template, rootless=rootless, hierarchy=hierarchy, environment=environment)


def main(home: str, tag: str, ready: int, cloudpickle: str = "", environment: str = "") -> None:
    """Run as a daemon; `ready` is a pipe that gets b"ok", or the reason why not."""
    os.chdir("/")
    # The caller's keys are none of a sandbox's business. The filter and the masks of /proc hide them too, so
    # a container that forbids this takes nothing away.
    with contextlib.suppress(OSError):
        kernel.leave_session_keyring()
    try:
        held = (findings.hold(environment),) if environment else ()
        settings = prepare(home, tag, environment)._replace(held=held)
        listener = messages.listen(f"{settings.layout.run}/zygote-{tag}")
    except OSError as error:
        os.write(ready, str(error).encode())
        raise SystemExit(1) from error
    sweep.sweep(settings)
    if cloudpickle:
        borrowed.lend(cloudpickle)
    rehearse(settings)
    # Each context forgets where modules were found; done here, that is not done again in each.
    sys.path_importer_cache.clear()
    find_own_modules()
    gc.collect()
    gc.freeze()
    gc.disable()
    if environment:
        settings = open_nursery(settings)
    zygote = Zygote(settings, listener)
    os.write(ready, b"ok")
    os.close(ready)
    try:
        zygote.run()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(f"{settings.layout.run}/zygote-{tag}")


def daemon(home: str, tag: str, ready: int, cloudpickle: str = "", environment: str = "") -> None:
    """Leave the caller's session, then be the zygote."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o022)
    # What its first caller had open without knowing, a file, a lock or a pipe, must not stay so while this lives.
    kernel.close_from(3, (ready,))
    os.set_inheritable(ready, False)
    # Its program came on descriptor 0, which is closed by now: the next that is opened would be called so.
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0, inheritable=True)
    if null != 0:
        os.close(null)
    os.set_inheritable(0, True)
    kernel.find_arguments()
    kernel.name_process("atoll-zygote", of=os.path.basename(os.path.dirname(environment))[:8])
    main(home, tag, ready, cloudpickle, environment)
