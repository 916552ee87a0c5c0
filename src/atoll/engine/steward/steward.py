"""The steward: starts a guest behind its wall, hands out streams to it, and ends it in time.

It trusts nothing that the guest says; of its control channel it only waits for the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from .. import headroom, messages
from ..removal import remove_tree
from ..settings import BirthFailed, code_of, started_at
from . import lot
from .wall import FILES, Ending, Readable, StartFailed, Wall, just_wait

if TYPE_CHECKING:
    from .past import Past

SOCKET, STOPPED, JOB = "steward", "stopped", "job"
_LONGEST_SLEEP = 86400.0
_EVERY_DESCRIPTOR = 1 << 30


class Steward:
    def __init__(self, job: dict[str, Any], wall: Wall, maker: socket.socket) -> None:
        self._box: str = job["box"]
        self._lifetime = float(job["lifetime"])
        self._env = job.get("env")
        self._begin = job.get("begin")
        self._parked: str | None = job.get("parked")
        self._wall = wall
        self._maker: socket.socket | None = maker
        self._clients: dict[int, socket.socket] = {}
        self._holds: set[object] = set()
        self._paused = self._frozen = False
        self._done = False
        self._keep_files = False
        self._ending: socket.socket | None = None
        self._poll = select.poll()
        self._past: Past | None = None
        self._pid = os.getpid()
        # What it listens on, while there may be somebody to answer.
        self._listener: socket.socket | None = None
        wall.wait = self.wait

    def live(self) -> None:
        """From birth to end.

        Raises:
            StartFailed: it was not born; nothing is left of it.
        """
        listener = self._born()
        try:
            self._listener = listener
            while not self._done:
                with contextlib.suppress(Ending):
                    self._turn(listener)
        finally:
            self._listener = None
            self._end()
            listener.close()

    def _born(self) -> socket.socket:
        _claim(self._box)
        path = f"{self._box}/{SOCKET}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        resumed = _is_kept(self._box)
        try:
            if not resumed:
                headroom.check(self._box)
            listener = messages.listen(path)
            if self._begin and not resumed:
                self._begin_with(self._begin)
            self._start()
            if self._parked is not None:
                lot.offer(self._parked)
        except BaseException as error:
            if self._parked is not None:
                lot.leave(self._parked)
            self._wall.end()
            if not resumed:
                self._wall.remove()
                remove_tree(self._box)
            if isinstance(error, BirthFailed):
                raise StartFailed(str(error), error.code) from error
            if isinstance(error, OSError):
                code = code_of(error, "create_failed")
                raise StartFailed(f"The sandbox could not be made: {error}.", code) from error
            raise
        self._since = time.time()
        self._expires = self._since + self._lifetime
        self._poll.register(listener, select.POLLIN)
        assert self._maker is not None  # noqa: S101  # set until it says "keep"
        if self._parked is None:
            self._add(self._maker)
            messages.send(self._maker, {"ready": self._facts()})
            return listener
        with contextlib.suppress(OSError), self._maker:
            messages.send(self._maker, {"ready": self._facts()})
        self._maker = None
        return listener

    def _facts(self) -> dict[str, Any]:
        return {**self._wall.facts, "pid": os.getpid(), "started": started_at(os.getpid())}

    def _adopt(self, client: socket.socket, request: dict[str, Any]) -> None:
        """Be the sandbox of whoever has taken this one out of the lot."""
        if self._parked is None:
            self.refuse(client, "Somebody else has this sandbox.", "busy")
            return
        lot.leave(self._parked)
        self._parked, self._maker = None, client
        self._since = time.time()
        self._expires = self._since + float(request["lifetime"])
        if request["env"]:
            self._tell_environment({**(self._env or {}), **request["env"]})
        messages.send(client, {"ok": self._facts()})

    def _start(self) -> None:
        self._control = self._wall.start()
        self._control.setblocking(False)
        self._tell_environment(self._env)
        self._poll.register(self._control, select.POLLIN)

    def _tell_environment(self, env: dict[str, str] | None) -> None:
        self._env = env
        if env is not None:
            self._control.send(b"e" + json.dumps(env).encode())

    def _begin_with(self, begin: dict[str, Any]) -> None:
        from .past import begin_with

        owners = {int(was): int(becomes) for was, becomes in begin["owners"].items()}
        begin_with(begin["files"], f"{self._box}/{FILES}", owners)

    def _add(self, client: socket.socket) -> None:
        client.setblocking(False)
        self._clients[client.fileno()] = client
        self._poll.register(client, select.POLLIN)

    def _turn(self, listener: socket.socket) -> None:
        wait = min(max(0.0, self._expires - time.time()), _LONGEST_SLEEP, self._wall.tend(time.monotonic()))
        if self._parked is not None:
            wait = min(wait, lot.LOOK)
        for fd, _ in self._poll.poll(wait * 1000 + 1):
            if fd == listener.fileno():
                with contextlib.suppress(OSError):
                    self._add(listener.accept()[0])
            elif fd == self._control.fileno():
                self._hear_guest()
            elif fd in self._clients:
                self._serve(self._clients[fd])
            elif self._past is not None:
                self._past.hears(fd)
        if time.time() >= self._expires or (self._parked is not None and not os.path.exists(self._box)):
            self._done, self._keep_files = True, False

    def wait(self, what: Readable | None, seconds: float) -> bool:
        """Wait for something that hostile code may draw out; who asks for the status is answered meanwhile.

        Gives whether it can be read.

        Raises:
            Ending: somebody has destroyed the sandbox, or its time is up.
        """
        if self._listener is None or self._done or os.getpid() != self._pid:
            return just_wait(what, seconds)
        poll = select.poll()
        for each in (self._listener, *self._clients.values(), *(() if what is None else (what,))):
            poll.register(each, select.POLLIN)
        until = time.monotonic() + seconds
        while True:
            left = min(max(0.0, until - time.monotonic()), max(0.0, self._expires - time.time()))
            for fd, _ in poll.poll(left * 1000 + 1):
                if what is not None and fd == what.fileno():
                    return True
                self._attend_meanwhile(fd, poll)
            if time.time() >= self._expires:
                self._done, self._keep_files = True, False
                raise Ending
            if time.monotonic() >= until:
                return False

    def _attend_meanwhile(self, fd: int, poll: select.poll) -> None:
        """Whatever can wait is left where it is. Raises Ending."""
        assert self._listener is not None  # noqa: S101  # see `wait`
        if fd == self._listener.fileno():
            with contextlib.suppress(OSError):
                client = self._listener.accept()[0]
                self._add(client)
                poll.register(client, select.POLLIN)
            return
        client = self._clients[fd]
        op = _asked(client)
        if op == "status":
            with contextlib.suppress(OSError):
                client.recv(messages.MAX_MESSAGE)
                messages.send(client, {"ok": {"status": self._status()}})
        elif op == "destroy":
            self._keep_files = False
            self._ending, self._done = client, True
            raise Ending
        else:
            poll.unregister(fd)

    def _status(self) -> str:
        return "paused" if self._paused else "running"

    def _hear_guest(self) -> None:
        """Only its end is of interest; what else it says goes nowhere."""
        try:
            if self._control.recv(messages.MAX_MESSAGE):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        if not self._done:
            self._keep_files = _is_kept(self._box)
            if self._parked is None:  # else nobody knows of it who could ask
                _leave_word(self._box, self._wall.epitaph())
        self._done = True

    def _serve(self, client: socket.socket) -> None:
        try:
            request, fds = messages.receive(client)
            messages.close(fds)
        except BlockingIOError:
            return
        except (messages.Ended, ValueError, OSError):
            self._drop(client)
            return
        try:
            self._obey(client, request)
        except BlockingIOError:
            self._drop(client)  # it does not read its answers
        except OSError as error:
            self.refuse(client, str(error), "sandbox_error")

    def answer(self, client: socket.socket, facts: dict[str, Any]) -> None:
        """For one that may be gone."""
        try:
            messages.send(client, {"ok": facts})
        except OSError:
            self._drop(client)

    def refuse(self, client: socket.socket, message: str, code: str) -> None:
        try:
            messages.send(client, {"error": {"code": code, "message": message}})
        except OSError:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        fd = client.fileno()
        self._poll.unregister(client)
        del self._clients[fd]
        if client is self._maker:
            # It leaves before "keep" and has not written the sandbox down: nobody knows of it, unless it was stopped.
            self._keep_files = _is_kept(self._box)
            self._done = True
        self.let_go(fd)
        if self._past is not None:
            self._past.forget(client)
        client.close()

    def _obey(self, client: socket.socket, request: dict[str, Any]) -> None:
        op = request.get("op")
        if op == "open":
            self._open(client)
        elif op in ("destroy", "stop"):
            self._keep_files = op == "stop"
            self._ending, self._done = client, True
        elif op == "metrics":
            usage = self._wall.usage()
            messages.send(client, {"ok": {**usage, "uptime": time.time() - self._since}})
        elif op in ("copy", "rollback"):
            self._past = self._past or self._make_past()
            self._past.ask(client, request)
        elif op == "adopt":
            self._adopt(client, request)
        elif op in self._wall.orders:
            self._pass_on(client, request)
        else:
            self._change(client, request)
            messages.send(client, {"ok": {"status": self._status()}})
            if op == "keep":
                self._wall.kept(request)

    def _pass_on(self, client: socket.socket, request: dict[str, Any]) -> None:
        """What only this kind of wall can do."""
        try:
            facts, fds = self._wall.obey(request)
        except StartFailed as failed:
            self.refuse(client, str(failed), failed.code)
            return
        try:
            messages.send(client, {"ok": facts}, *fds)
        finally:
            messages.close(list(fds))

    def _change(self, client: socket.socket, request: dict[str, Any]) -> None:
        op = request.get("op")
        if op == "keep":
            self._maker = None
            self._keep_on()
        elif op == "checkpoint":
            _mark_kept(self._box, self._expires)
        elif op == "lifetime":
            self._expires = time.time() + float(request["seconds"])
            self._keep_on()
        elif op == "hold":
            self.hold(client.fileno())
        elif op in ("pause", "resume"):
            self._paused = op == "pause"
            self._freeze_as_wanted()

    def _keep_on(self) -> None:
        """What was to be kept once, is until its new time."""
        if _is_kept(self._box):
            _mark_kept(self._box, self._expires)

    def _make_past(self) -> Past:
        from .past import Past

        return Past(self._box, self._wall, self, self._poll)

    def hold(self, who: object) -> None:
        """Have everything stand still until all who hold it let go. Raises OSError."""
        self._holds.add(who)
        try:
            self._freeze_as_wanted()
        except OSError:
            self._holds.discard(who)
            raise

    def let_go(self, who: object) -> None:
        self._holds.discard(who)
        self._freeze_as_wanted()

    def begin_again(self, swap: Callable[[], None]) -> None:
        """End all that runs, do something with its files, and start the guest anew."""
        self._poll.unregister(self._control)
        self._control.close()
        self._wall.end()
        self._frozen = self._paused = False
        self._holds.clear()
        try:
            swap()
            self._start()
        except Exception as error:
            self._done = True
            _leave_word(self._box, f"it could not be started again: {error}")
            raise

    def _freeze_as_wanted(self) -> None:
        """Frozen while it is paused, and while somebody who copies its files holds it still."""
        wanted = bool(self._paused or self._holds)
        if wanted != self._frozen:
            (self._wall.pause if wanted else self._wall.resume)()
            self._frozen = wanted

    def _open(self, client: socket.socket) -> None:
        if self._paused:
            self.refuse(client, "The sandbox is paused. Call resume() first.", "busy")
            return
        ours, theirs = messages.stream()
        with ours, theirs:
            try:
                socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            except BlockingIOError:
                self.refuse(client, "The sandbox takes no more connections for now.", "busy")
                return
            messages.send(client, {"ok": {}}, ours.fileno())

    def _end(self) -> None:
        if not self._keep_files:
            self._wall.forsake()
        self._wall.end()
        if self._parked is not None:
            lot.leave(self._parked)
        if self._keep_files:
            # Before the end of the socket: who finds nobody there must find this.
            _mark_kept(self._box, self._expires)
        else:
            self._wall.remove()
            remove_tree(self._box)
        if self._ending is not None:
            with contextlib.suppress(OSError):
                messages.send(self._ending, {"ok": {}})


def _asked(client: socket.socket) -> str | None:
    """What somebody wants, which is still to be received; None where it cannot be told, or nobody is there."""
    try:
        return str(messages.decode(client.recv(messages.MAX_MESSAGE, socket.MSG_PEEK)).get("op"))
    except (messages.Ended, ValueError, OSError):
        return None


def _claim(box: str) -> None:
    """Make this process the one that keeps a sandbox, for as long as it lives. Raises StartFailed, OSError."""
    try:
        fd = os.open(box, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StartFailed("The files of this sandbox are gone: somebody has destroyed it.") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StartFailed("Somebody else is already resuming this sandbox.", "busy") from None


def word_of_end(box: str) -> str:
    """Where a steward writes why its sandbox has ended, if it can tell."""
    return f"{box}.end"


def _leave_word(box: str, epitaph: str | None) -> None:
    if epitaph:
        with contextlib.suppress(OSError), open(word_of_end(box), "w", encoding="utf-8") as file:
            file.write(epitaph)


def _mark_kept(box: str, until: float) -> None:
    path = f"{box}/{STOPPED}"
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(str(until))
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def kept_until(box: str) -> float:
    """Until when the files of a stopped sandbox are kept; 0 when it is not a stopped one."""
    try:
        with open(f"{box}/{STOPPED}", encoding="ascii") as file:
            return float(file.read())
    except (OSError, ValueError):
        return 0.0


def _is_kept(box: str) -> bool:
    return kept_until(box) > 0


def load(target: str) -> type[Wall]:
    """The class that a `module:name` says."""
    module, _, name = target.partition(":")
    found: type[Wall] = getattr(import_module(module), name)
    return found


def main(maker: int) -> NoReturn:
    """Take the job from standard input, leave the maker's family, and keep the sandbox."""
    with open(0, "rb", closefd=False) as source:
        job = json.load(source)
    if os.fork():
        os._exit(0)
    # What the maker's process had open without knowing is nobody's business here, and the guest would inherit it.
    os.closerange(maker + 1, _EVERY_DESCRIPTOR)
    keep(job, socket.socket(fileno=maker))


def keep(job: dict[str, Any], maker: socket.socket) -> NoReturn:
    """Be the steward of a sandbox, in a process that was made for it and has nothing else open."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    sys.path += [place for place in job["path"] if place not in sys.path]
    maker.set_inheritable(False)
    # Not above: clients read the names of this module, and ctypes would cost them milliseconds.
    from .. import kernel

    kernel.find_arguments()
    kernel.name_process("atoll-steward", of=os.path.basename(job["box"]))
    code = 1
    try:
        Steward(job, load(job["wall"])(job["box"], job["job"]), maker).live()
        code = 0
    except StartFailed as failed:
        _report(maker, str(failed), failed.code, failed.hint)
    except Exception as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
        _report(maker, f"The sandbox could not be made: {error!r}.", "create_failed", None)
    finally:
        os._exit(code)


def _report(sock: socket.socket, message: str, code: str, hint: str | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        messages.send(sock, {"error": {"code": code, "message": message[:4000], "hint": hint}})
