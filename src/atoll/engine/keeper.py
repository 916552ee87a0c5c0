"""The keeper: one small trusted process a sandbox, outside its wall, from its birth to its end.

It has a midwife make the sandbox, then holds its control channel, lifetime and control group, and answers
clients on a socket of its own. Nothing that a client sends can make it do more than `_REQUESTS`, and it reads nothing
that the guest sends: of the control channel it only sees the end. What takes time, or looks at what the guest has
made, is done by children (`errands`), one after another, while it goes on answering.
It does as little as it can: all that it touches is memory that every sandbox pays for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from . import (
    cgroups,
    disk,
    ending,
    errands,
    layers,
    messages,
    midwife,
    nursed,
    parting,
    process_memory,
    sweep,
    usage,
    viewpost,
    watches,
)
from .birthorders import Order
from .claim import claim
from .places import Rules
from .recording import Recorder
from .restack import Sandbox
from .settings import BirthFailed, Settings, code_of
from .stillness import Stillness
from .watch import Watch, advance

if TYPE_CHECKING:
    from .denials import Listener

# How long a keeper with nothing to do sleeps at most, in seconds.
TURN = 30.0
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
# How long it may take until nobody new is found who must be stopped, in seconds.
_FREEZING = 5.0
# Its end is told anyway.
_ENDED_ONLY = 0
# Children made by clone without a signal, too.
_WALL = 0x40000000

Measurement = Generator[None, None, dict[str, Any]]
Finish = Callable[[dict[str, Any], list[int]], None]


class Keeper:
    def __init__(self, settings: Settings, sandbox: str, born: dict[str, Any], fds: list[int]) -> None:
        self._settings = settings
        self._id = sandbox
        self._address = settings.layout.socket(sandbox)
        self._first = born["first"]
        self._born = born["born"]
        self._expires = born["born"] + born["lifetime"]
        self._workdir = born["workdir"]
        self._source, self._quota = born["source"], born["quota"]
        self._rules = Rules.of(born)
        self._view = viewpost.unpack(fds[4:] if born["nursed"] else fds[3:])
        self._facts = born["facts"]
        self._control, self._listener, maker = (socket.socket(fileno=fd) for fd in fds[:3])
        # A guest that does not listen must not stop its keeper.
        self._control.setblocking(False)
        self._maker: socket.socket | None = maker
        self._clients = {maker.fileno(): maker}
        self._paused = False
        self._stillness: Stillness | None = None
        self._done = False
        self._recorder = Recorder(settings.layout.box(sandbox), self._source)
        self._own_watches, self._watches = watches.needed(
            born, settings.layout, sandbox, lambda: self._sandbox().processes()
        )
        self._denials: Listener | None = None
        self._poll = select.poll()
        self._poll.register(self._control.fileno(), _ENDED_ONLY)
        for sock in (self._listener, maker):
            self._poll.register(sock.fileno(), _READABLE)
        # What is done by a child now, and what has to wait for it.
        self._errand: tuple[errands.Errand, Finish] | None = None
        self._turns: deque[tuple[socket.socket, Callable[[], None]]] = deque()
        self._measuring: list[tuple[socket.socket, Measurement]] = []
        self._keep_on(only_if_kept=True)
        self.keep_files = False
        self.ending: socket.socket | None = None

    @property
    def expires(self) -> float:
        return float(self._expires)

    def record_source(self, since: float) -> None:
        """So that a review can tell what the source has changed meanwhile."""
        self._recorder.begin(self._rules, since)

    def serve(self) -> None:
        """Until somebody ends the sandbox, its time is up, or its first process is gone."""
        while not self._done:
            for fd, _ in self._poll.poll(self._wait()):
                self._attend(fd)
            self._end_late_errand()
            if time.time() >= self._expires or not os.path.exists(self._address):
                # Without its socket nobody can ever reach it again: the state directory was removed.
                self._done = True
            for each in self._watching():
                each.look(time.monotonic())
            self._go_on_measuring()
            self._recorder.is_busy()
            if self._denials:
                self._denials.look(time.monotonic(), at_once=self._done)
        if self._denials:
            self._denials.close()
        if self._errand:
            self._errand[0].end()
        if group := self._group():
            group.thaw()  # a frozen process cannot die; one that was stopped can

    def _watching(self) -> list[Watch]:
        """What wants to look now and then: at a frozen sandbox, only at the disk that others write to as well."""
        if self._done or (self._paused and self._stillness is None):
            return self._watches
        # Whoever stops or continues processes now is not to be met.
        still = [self._stillness] if self._stillness is not None and self._errand is None else []
        return [*self._own_watches, *still, *self._watches]

    def _attend(self, fd: int) -> None:
        if fd == self._listener.fileno():
            with contextlib.suppress(OSError):
                self._accept()
        elif fd == self._control.fileno():
            self.keep_files = self.keep_files or (self.ending is None and self._is_kept())
            self._done = True
        elif fd in self._clients:
            self._hear(self._clients[fd])
        elif self._errand and fd == self._errand[0].fileno():
            self._poll.unregister(fd)
            self._finish(*self._errand[0].answer())

    def give_up_disk(self) -> None:
        """What was written need not reach the disk any more: unmounting it would wait for that."""
        if self._facts["limits"]["disk"] != "kernel":
            return
        if self.is_stacked:
            # What they hold is let go with this process: others than the one who waits for the end wait for it.
            parting.give_up(self._settings.layout, self._id)
        else:
            disk.shut_down(f"/proc/{self._first}/root/tmp")

    @property
    def is_stacked(self) -> bool:
        return os.path.exists(f"{self._settings.layout.box(self._id)}/stack")

    def _wait(self) -> float:
        if self._measuring:
            return 0.0
        wait, now = max(0.0, self._expires - time.time()), time.monotonic()
        for each in self._watching():
            wait = min(wait, each.due(now))
        if self._denials:
            wait = min(wait, self._denials.due(now))
        if self._errand:
            wait = min(wait, max(0.0, self._errand[0].until - now))
        return float(min(wait, TURN) * 1000 + 1)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if messages.peer_uid(client) not in (0, os.getuid()):
            client.close()
            return
        self._clients[client.fileno()] = client
        self._poll.register(client.fileno(), _READABLE)

    def _drop(self, client: socket.socket) -> None:
        self._poll.unregister(client.fileno())
        del self._clients[client.fileno()]
        self._turns = deque(each for each in self._turns if each[0] is not client)
        self._measuring = [each for each in self._measuring if each[0] is not client]
        if client is self._maker:
            # The maker went away before it said that it has written the sandbox down: nobody knows of it, unless
            # it was a stopped one.
            self.keep_files = self._is_kept()
            self._done = True
        client.close()

    def _hear(self, client: socket.socket) -> None:
        try:
            request, fds = messages.receive(client)
        except (messages.Ended, ValueError):
            self._drop(client)
            return
        try:
            self._attempt(client, lambda: self._answer(client, {**request, "descriptors": fds}))
        finally:
            messages.close(fds)

    def _answer(self, client: socket.socket, request: dict[str, Any]) -> None:
        handler = _REQUESTS.get(str(request.get("op")))
        if handler is None:
            raise BirthFailed(f"This sandbox's keeper does not know {request.get('op')!r}.", "unknown_request")
        handler(self, client, request)

    def _attempt(self, client: socket.socket, act: Callable[[], None]) -> None:
        """Do something for a client, who is told what goes wrong."""
        try:
            act()
        except (KeyError, TypeError, ValueError) as error:
            _tell_error(client, {"code": "invalid_input", "message": f"A request that makes no sense: {error!r}."})
        except (BirthFailed, OSError, usage.TooDeep) as error:
            _tell_error(client, {"code": code_of(error, "sandbox_error"), "message": str(error)})

    def _in_turn(self, client: socket.socket, act: Callable[[], None]) -> None:
        """Do something when no errand is under way any more: two that stop and move processes must not meet."""
        self._turns.append((client, act))
        self._take_turns()

    def _take_turns(self) -> None:
        while self._turns and self._errand is None and not self._done:
            self._attempt(*self._turns.popleft())

    def _begin(self, errand: errands.Errand, finish: Finish) -> None:
        self._errand = errand, finish
        self._poll.register(errand.fileno(), _READABLE)

    def _finish(self, answer: dict[str, Any], fds: list[int]) -> None:
        if self._errand is not None:
            _, finish = self._errand
            self._errand = None
            finish(answer, fds)
        self._take_turns()

    def _end_late_errand(self) -> None:
        if self._errand and time.monotonic() >= self._errand[0].until:
            self._poll.unregister(self._errand[0].fileno())
            self._finish(self._errand[0].end(), [])

    def on_keep(self, client: socket.socket, request: dict[str, Any]) -> None:
        if client is self._maker:
            self._maker = None

    def on_open(self, client: socket.socket, request: dict[str, Any]) -> None:
        if self._paused:
            raise BirthFailed("The sandbox is paused; call resume() first.", "busy")
        ours, theirs = messages.stream()
        with ours, theirs:
            try:
                socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            except BlockingIOError:
                raise BirthFailed("The guest takes no more streams.", "busy") from None
            messages.send(client, {"ok": {}}, ours.fileno())

    def on_status(self, client: socket.socket, request: dict[str, Any]) -> None:
        status = "paused" if self._paused else "running"
        messages.send(client, {"ok": {"status": status, "expires": self._expires, **self._facts}})

    def on_lifetime(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._expires = time.time() + float(request["seconds"])
        self._keep_on(only_if_kept=True)
        messages.send(client, {"ok": {"expires": self._expires}})

    def on_metrics(self, client: socket.socket, request: dict[str, Any]) -> None:
        """A little at a time, as watches look: many processes and files take long to measure."""
        self._measuring.append((client, self._measure()))

    def _measure(self) -> Generator[None, None, dict[str, Any]]:
        group, pids = self._group(), self._sandbox().processes()
        memory = group.memory_used() if group else sum((yield from process_memory.of_each(self._first)).values())
        cpu = 0.0
        for pid in pids:
            cpu += usage.cpu_seconds([pid])
            yield
        box = self._settings.layout.box(self._id)
        if self._facts["limits"]["disk"] == "kernel":
            disk_used = usage.mounted_disk(self._first, self._workdir)
        else:
            disk_used = yield from usage.measure(box)
        return {
            "memory": memory,
            "cpu_seconds": cpu,
            "processes": len(pids),
            "disk": layers.below(box) + disk_used,
            "uptime": time.time() - self._born,
        }

    def _go_on_measuring(self) -> None:
        for client, steps in [*self._measuring]:
            self._attempt(client, partial(self._go_on, client, steps))

    def _go_on(self, client: socket.socket, steps: Measurement) -> None:
        self._measuring.remove((client, steps))
        if (answer := advance(steps)) is None:
            self._measuring.append((client, steps))
        else:
            messages.send(client, {"ok": answer})

    def on_pause(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._in_turn(client, lambda: self._set_paused(client, paused=True))

    def on_resume(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._in_turn(client, lambda: self._set_paused(client, paused=False))

    def _set_paused(self, client: socket.socket, *, paused: bool, failed: dict[str, Any] | None = None) -> None:
        """Stop or continue all that is in it, and tell the client, of a failure before if there was one."""

        def work() -> errands.Outcome:
            self._freeze(frozen=paused)
            return {"ok": {}}, ()

        def finish(answer: dict[str, Any], _fds: list[int]) -> None:
            if "error" in answer and paused:
                # Some have stopped, perhaps.
                self._set_paused(client, paused=False, failed=answer)
                return
            self._paused = paused
            self._stillness = Stillness(self._first) if paused and not self._can_freeze() else None
            self._attempt(client, lambda: messages.send(client, failed or answer))

        self._begin(errands.Errand(work), finish)

    def _group(self) -> cgroups.Group | None:
        return cgroups.Group(self._settings.hierarchy, self._id) if self._settings.hierarchy else None

    def _can_freeze(self) -> bool:
        group = self._group()
        return group is not None and group.can_freeze

    def _freeze(self, *, frozen: bool) -> None:
        group = self._group()
        try:
            if group and group.can_freeze:
                group.freeze(frozen)
            else:
                usage.signal_all(self._first, signal.SIGSTOP if frozen else signal.SIGCONT, _FREEZING)
        except TimeoutError as error:
            raise BirthFailed(f"The sandbox cannot be paused now: {error}.", "busy") from None

    def on_restack(self, client: socket.socket, request: dict[str, Any]) -> None:
        """Exchange what it stands on; see `restack`."""
        self._in_turn(client, lambda: self._restack(client, request))

    def _restack(self, client: socket.socket, request: dict[str, Any]) -> None:
        if self._paused:
            raise BirthFailed("The sandbox is paused; call resume() first.", "busy")
        began = time.time()
        work = errands.Restacking(self._settings, self._sandbox(), request)

        def finish(told: dict[str, Any], fds: list[int]) -> None:
            answer, view = work.outcome(told, fds)
            if view is not self._view:
                if self._view:
                    self._view.close()
                self._view = view
                self._rules = Rules.of(request) if request["kind"] == "rules" else self._rules
            self._attempt(client, lambda: messages.send(client, answer))
            if request["kind"] == "discard" and "ok" in answer:
                self._recorder.begin_anew(self._rules, began)

        self._begin(work.errand, finish)

    def on_stage(self, client: socket.socket, request: dict[str, Any]) -> None:
        """Show what it has changed; see `staging`."""
        if request.get("patient") and self._recorder.is_busy():
            messages.send(client, {"ok": {"recording": True}})
        else:
            self._in_turn(client, lambda: self._stage(client))

    def _stage(self, client: socket.socket) -> None:
        def finish(failed: dict[str, Any], _fds: list[int]) -> None:
            if failed:
                self._attempt(client, lambda: messages.send(client, failed))

        self._begin(errands.stage(self._settings, self._sandbox(), client), finish)

    def _sandbox(self) -> Sandbox:
        return Sandbox(
            self._id,
            self._first,
            None if self._settings.rootless else self._facts["uid"],
            self._source,
            self._workdir,
            self._quota,
            loop=self._facts["limits"]["disk"] == "kernel",
            rules=self._rules,
            view=self._view,
            group=self._group(),
        )

    def on_checkpoint(self, client: socket.socket, request: dict[str, Any]) -> None:
        """From now on only its time and somebody's wish remove its files."""
        self._keep_on()
        messages.send(client, {"ok": {}})

    def _is_kept(self) -> bool:
        return sweep.kept_until(self._settings.layout, self._id) > 0

    def _keep_on(self, *, only_if_kept: bool = False) -> None:
        if not only_if_kept or self._is_kept():
            sweep.keep_until(self._settings.layout, self._id, self._expires)

    def on_audit(self, client: socket.socket, request: dict[str, Any]) -> None:
        """Write down what the kernel has denied by now; with `start`, listen from now on."""
        if request.get("start") and self._denials is None:
            from .denials import listen

            self._denials = listen(self._settings, self._id, self._first, self._facts["uid"], self._workdir)
        if self._denials:
            self._denials.look(time.monotonic(), at_once=True)
        messages.send(client, {"ok": {}})

    def on_stop(self, client: socket.socket, request: dict[str, Any]) -> None:
        self.on_destroy(client, request)
        self.keep_files = True

    def on_destroy(self, client: socket.socket, request: dict[str, Any]) -> None:
        self.keep_files = False
        self.ending = client
        self._done = True


_REQUESTS: dict[str, Callable[[Keeper, socket.socket, dict[str, Any]], None]] = {
    "keep": Keeper.on_keep,
    "open": Keeper.on_open,
    "status": Keeper.on_status,
    "lifetime": Keeper.on_lifetime,
    "metrics": Keeper.on_metrics,
    "pause": Keeper.on_pause,
    "resume": Keeper.on_resume,
    "checkpoint": Keeper.on_checkpoint,
    "restack": Keeper.on_restack,
    "stage": Keeper.on_stage,
    "audit": Keeper.on_audit,
    "stop": Keeper.on_stop,
    "destroy": Keeper.on_destroy,
}


def _tell_error(client: socket.socket, error: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        messages.send(client, {"error": error})


def live(settings: Settings, order: Order, fds: list[int]) -> NoReturn:
    """The whole life of a keeper process: the birth, the service, the end.

    `fds` is the zygote for a sandbox to be parked; else who asked, a pipe to the zygote whose end tells that the
    sandbox is made, and the job.
    """
    code = 1
    try:
        if len(fds) == 1:
            born, kept = _adopt(settings, order, fds[0])
        else:
            born, kept = _make(settings, order, socket.socket(fileno=fds[0]), fds[2])
            os.close(fds[1])
        _keep(settings, order.sandbox, born, kept)
        code = 0
    except BaseException:  # noqa: BLE001 - the log is the only place left to tell
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _make(settings: Settings, order: Order, maker: socket.socket, job: int) -> midwife.Delivery:
    mine = not order.resumes
    try:
        if not mine:
            claim(settings.layout, order.sandbox)
            mine = True
        return midwife.make(settings, order, maker, job)
    except (BirthFailed, OSError) as error:
        return {"failed": midwife.failure(error), "mine": mine}, [maker.detach()]


def _adopt(settings: Settings, order: Order, zygote: int) -> midwife.Delivery:
    """Let a midwife do the work; nothing is delivered when she dies, or when the zygote goes first."""
    ours, theirs = messages.pair()
    helper = os.fork()
    if helper == 0:
        ours.close()
        midwife.park(settings, order, socket.socket(fileno=zygote), theirs)
    theirs.close()
    os.close(zygote)
    try:
        return messages.receive(ours)
    except messages.Ended:
        return {}, []
    finally:
        ours.close()
        os.waitpid(helper, 0)


def _keep(settings: Settings, sandbox: str, born: dict[str, Any], fds: list[int]) -> None:
    if "first" not in born:
        ending.end_children()
        if born.get("mine", True):
            ending.undo(settings, sandbox)
        if fds:
            _tell_error(socket.socket(fileno=fds[0]), born["failed"])
        return
    keeper = Keeper(settings, sandbox, born, fds)
    keeper.record_source(born["born"])
    keeper.serve()
    stacked = keeper.is_stacked
    if not keeper.keep_files:
        keeper.give_up_disk()
    for pidfd in fds[3:4] if born["nursed"] else ():
        nursed.end_nursed(pidfd)
    ending.end_children()
    if keeper.keep_files:
        ending.leave_files(settings, sandbox, keeper.expires)
    else:
        ending.remove(settings, sandbox)
    if keeper.ending:
        with contextlib.suppress(OSError):
            messages.send(keeper.ending, {"ok": {}})
    if stacked and not keeper.keep_files:
        layers.Layers(settings.layout).collect()
