"""The keeper: one small trusted process a sandbox, outside its wall.

It makes the sandbox (`birth`), then holds its control channel, lifetime and control group, and answers
clients on a socket of its own. Nothing a client or the guest sends can make it do more than `_REQUESTS`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from . import jobs, limits, messages, usage
from .birth import Birth
from .settings import BirthFailed, Settings, new_id, started_at
from .removal import remove_tree
from .watchdog import Watchdog

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Keeper:
    """Lives from the birth of a sandbox to its end, then `run` returns and nothing of it is left."""

    def __init__(self, settings: Settings, sandbox: str) -> None:
        self._settings = settings
        self._birth = Birth(settings, sandbox)
        self._listener = messages.listen(settings.layout.socket(sandbox))
        self._poll = select.poll()
        self._clients: dict[int, socket.socket] = {}
        self._maker: socket.socket | None = None
        self._job: dict[str, Any] = {}
        self._born = time.time()
        self._expires = float("inf")
        self._paused = False
        self._keep_files = False
        self._ending: socket.socket | None = None
        self._done = False
        self._watchdog: Watchdog | None = None

    def park(self, *, closed: bool) -> None:
        """Get as far as can be got without knowing what the caller wants. Raises BirthFailed."""
        job = limits.plan(jobs.COMMON, self._settings)
        self._birth.start(job, closed=closed)

    def abandon(self) -> None:
        """Nobody wants it: leave nothing."""
        self._tear_down()

    def serve(self, maker: socket.socket, job: dict[str, Any], *, parked: bool) -> None:
        """Finish the sandbox for `maker`, then keep it until its end."""
        self._maker = maker
        try:
            job = limits.plan(job, self._settings)
            if not parked:
                if uid := job["resume_uid"]:
                    self._birth.uid = uid
                has_group = self._settings.hierarchy is not None
                self._birth.start(job, closed=jobs.kind(job, has_group=has_group) == "closed")
            self._finish(job)
        except (BirthFailed, OSError) as error:
            code = getattr(error, "code", "create_failed")
            self._keep_files = bool(job.get("resume"))
            self._tear_down()
            with contextlib.suppress(OSError):
                messages.send(maker, {"error": {"code": code, "message": str(error)}})
            return
        self._loop()
        self._tear_down()
        if self._ending:
            with contextlib.suppress(OSError):
                messages.send(self._ending, {"ok": {}})

    def _finish(self, job: dict[str, Any]) -> None:
        birth = self._birth
        self._job = job
        if job["network"] == "all":
            from .network import connect_all

            birth.undo.append(connect_all(birth.id, birth.pid, rootless=self._settings.rootless))
        birth.finish(job)
        self._expires = self._born + job["lifetime"]
        self._watchdog = Watchdog(job, birth.box, birth.pid)
        with birth.connect_guest() as stream:
            assert self._maker
            messages.send(self._maker, {"ready": self._facts()}, stream.fileno())
        self._watch(self._listener.fileno())
        assert birth.control
        self._watch(birth.control.fileno())
        self._add(self._maker)

    def _facts(self) -> dict[str, Any]:
        job, birth = self._job, self._birth
        return {
            "id": birth.id,
            "pid": os.getpid(),
            "started": started_at(os.getpid()),
            "uid": birth.uid,
            "limits": job["enforcement"],
            "walls": job["walls"],
        }

    def _watch(self, fd: int) -> None:
        self._poll.register(fd, _READABLE)

    def _add(self, client: socket.socket) -> None:
        self._clients[client.fileno()] = client
        self._watch(client.fileno())

    def _drop(self, client: socket.socket) -> None:
        self._poll.unregister(client.fileno())
        del self._clients[client.fileno()]
        if client is self._maker:
            # The maker went away before it said that it has written the sandbox down: nobody knows of it.
            self._done = True
        client.close()

    def _loop(self) -> None:
        assert self._birth.control
        control = self._birth.control.fileno()
        listener = self._listener.fileno()
        while not self._done:
            for fd, _ in self._poll.poll(self._wait()):
                if fd == listener:
                    with contextlib.suppress(OSError):
                        self._accept()
                elif fd == control:
                    # The guest says nothing here; whatever this is, it is the end.
                    self._done = True
                elif fd in self._clients:
                    self._serve_client(self._clients[fd])
            if time.time() >= self._expires:
                self._done = True
            elif self._watchdog and not self._paused:
                self._watchdog.look(time.monotonic())

    def _wait(self) -> float:
        wait = max(0.0, self._expires - time.time())
        if self._watchdog and not self._paused:
            wait = min(wait, self._watchdog.due(time.monotonic()))
        return min(wait, 86400.0) * 1000 + 1

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if messages.peer_uid(client) not in (0, os.getuid()):
            client.close()
            return
        self._add(client)

    def _serve_client(self, client: socket.socket) -> None:
        try:
            request, fds = messages.receive(client)
        except (messages.Ended, ValueError):
            self._drop(client)
            return
        for fd in fds:
            os.close(fd)
        handler = _REQUESTS.get(str(request.get("op")))
        try:
            if handler is None:
                raise BirthFailed(f"This sandbox's keeper does not know {request.get('op')!r}.", "unsupported")
            handler(self, client, request)
        except (BirthFailed, OSError) as error:
            code = getattr(error, "code", "sandbox_error")
            with contextlib.suppress(OSError):
                messages.send(client, {"error": {"code": code, "message": str(error)}})

    def _on_keep(self, client: socket.socket, request: dict[str, Any]) -> None:
        if client is self._maker:
            self._maker = None

    def _on_open(self, client: socket.socket, request: dict[str, Any]) -> None:
        if self._paused:
            raise BirthFailed("The sandbox is paused; call resume() first.", "busy")
        with self._birth.connect_guest() as stream:
            messages.send(client, {"ok": {}}, stream.fileno())

    def _on_status(self, client: socket.socket, request: dict[str, Any]) -> None:
        status = "paused" if self._paused else "running"
        messages.send(client, {"ok": {"status": status, "expires": self._expires, **self._facts()}})

    def _on_lifetime(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._expires = time.time() + float(request["seconds"])
        messages.send(client, {"ok": {"expires": self._expires}})

    def _on_metrics(self, client: socket.socket, request: dict[str, Any]) -> None:
        birth = self._birth
        pids = usage.descendants(birth.pid)
        memory = birth.group.memory_used() if birth.group else usage.memory(pids)
        answer = {
            "memory": memory,
            "cpu_seconds": usage.cpu_seconds(pids),
            "processes": len(pids),
            "disk": usage.disk(birth.box),
            "uptime": time.time() - self._born,
        }
        messages.send(client, {"ok": answer})

    def _on_pause(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._freeze(frozen=True)
        messages.send(client, {"ok": {}})

    def _on_resume(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._freeze(frozen=False)
        messages.send(client, {"ok": {}})

    def _freeze(self, *, frozen: bool) -> None:
        birth = self._birth
        if birth.group:
            birth.group.freeze(frozen)
        else:
            usage.signal_all(birth.pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        self._paused = frozen

    def _on_stop(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._keep_files = True
        self._on_destroy(client, request)

    def _on_destroy(self, client: socket.socket, request: dict[str, Any]) -> None:
        self._ending = client
        self._done = True

    def _tear_down(self) -> None:
        birth = self._birth
        if self._paused and birth.group:
            # A frozen process cannot die.
            with contextlib.suppress(OSError):
                birth.group.freeze(frozen=False)
        birth.end()
        if birth.group:
            birth.group.remove()
        self._listener.close()
        if self._keep_files:
            with open(f"{birth.box}/stopped", "w", encoding="ascii") as file:
                file.write(str(self._expires))
        else:
            remove_tree(birth.box)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._settings.layout.socket(birth.id))


_REQUESTS: dict[str, Callable[[Keeper, socket.socket, dict[str, Any]], None]] = {
    "keep": Keeper._on_keep,
    "open": Keeper._on_open,
    "status": Keeper._on_status,
    "lifetime": Keeper._on_lifetime,
    "metrics": Keeper._on_metrics,
    "pause": Keeper._on_pause,
    "resume": Keeper._on_resume,
    "stop": Keeper._on_stop,
    "destroy": Keeper._on_destroy,
}


def keep(settings: Settings, job: dict[str, Any], maker: socket.socket) -> NoReturn:
    """The whole life of a keeper process that has its job from the start."""
    _live(lambda: Keeper(settings, job["resume"] or new_id()).serve(maker, job, parked=False))


def wait_parked(settings: Settings, zygote: socket.socket, *, closed: bool) -> NoReturn:
    """The whole life of a keeper process whose job comes later, or never."""
    _live(lambda: _parked(Keeper(settings, new_id()), zygote, closed=closed))


def _live(life: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        life()
        code = 0
    except BaseException:  # noqa: BLE001 - the log is the only place left to tell
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _parked(keeper: Keeper, zygote: socket.socket, *, closed: bool) -> None:
    try:
        keeper.park(closed=closed)
    except (BirthFailed, OSError) as error:
        messages.send(zygote, {"failed": str(error)})
        keeper.abandon()
        return
    messages.send(zygote, {"parked": True})
    try:
        job, fds = messages.receive(zygote)
    except messages.Ended:
        keeper.abandon()
        return
    zygote.close()
    keeper.serve(socket.socket(fileno=fds[0]), job, parked=True)
