"""The wall of one sandbox behind bubblewrap, as its steward keeps it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ..engine import (
    cgroups,
    disk,
    errands,
    findings,
    inspection,
    kernel,
    layers,
    network,
    parting,
    places,
    staging,
    threshold,
    usage,
    watches,
)
from ..engine.layers import Layers
from ..engine.layout import Layout
from ..engine.recording import Recorder
from ..engine.restack import Sandbox
from ..engine.settings import FIRST_UID, UIDS, BirthFailed, Settings
from ..engine.steward.wall import StartFailed, Wall
from ..engine.stillness import Stillness
from ..engine.views import View
from ..engine.watch import Watch
from .bwrap_binary import Binary
from .bwrap_birth import bear
from .bwrap_world import Order

_DEATH = 10.0
# How long it may take until nobody new is found who must be stopped, in seconds.
_FREEZING = 5.0


class BwrapWall(Wall):
    """The job has `order`, as `engine.orders` makes it, `stands`, which replaces some of that, `binary`, `home` and
    `cloudpickle`."""

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        super().__init__(box, job)
        self._places = Layout(job["home"], job["wall"])
        self._id = os.path.basename(box)
        self._order = {**job["order"], **job["stands"]}
        self._rootless = threshold.is_rootless()
        self._monitor = 0
        self._watched = -1
        hierarchy = cgroups.find()
        self._group = cgroups.Group(hierarchy, self._id) if hierarchy else None
        self._stacked = False
        self._own_watches: list[Watch] = []
        self._watches: list[Watch] = []
        self._frozen = False
        # Where no control group does that: what keeps it paused.
        self._stillness: Stillness | None = None
        self._view: View | None = None
        self._rules = places.Rules.of(self._order)
        self._quota = 0
        self._recorder = Recorder(box, self._order["source"])
        # Packages that it was made with are kept while this process lives.
        self._packages = findings.hold(self._order["environment"]) if self._order["environment"] else -1
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)

    def start(self) -> socket.socket:
        self._cross()
        since = time.time()
        self._uid = os.getuid() if self._rootless else FIRST_UID + os.getpid() % UIDS
        path, version, beside = self.job["binary"]
        binary = Binary(path, tuple(version), tuple(beside))
        order = Order(self._places, self._id, self._uid, self._rootless, self._order, binary, self.job["cloudpickle"])
        born = bear(order, self._connect if self._order["network"] == "all" else None)
        self._monitor, self.guest, self._watched, self._view = born.monitor, born.guest, born.watched, born.view
        if self._order["network"] == "none":
            network.add_dummies(self.guest)
        self._take(born.told)
        self._recorder.begin(self._rules, since)
        return born.control

    def _connect(self, pid: int) -> None:
        network.connect_all(self._id, self.box, pid, rootless=self._rootless, kinship=0)

    def _take(self, told: dict[str, Any]) -> None:
        """What the sandbox is like."""
        order = self._order
        environment = os.path.basename(os.path.dirname(order["environment"] or ""))
        self.facts = {name: told[name] for name in ("uid", "limits", "walls", "view")}
        self.facts |= {"home": self._places.home, "codebase": order.get("codebase"), "environment": environment or None}
        self._quota = told["quota"]
        born = {"facts": told, "memory": order["memory"], "quota": told["quota"], "first": self.guest}
        born["pids"] = order["pids"]
        self._own_watches, self._watches = watches.needed(born, self._places, self._id, self._processes)

    def _cross(self) -> None:
        """An ordinary user keeps its sandboxes from a user namespace in which it may mount."""
        if not self._rootless or threshold.crossed:
            return
        try:
            threshold.enter()
        except OSError as error:
            from ..engine.probe import namespace_fix

            raise StartFailed(
                f"bubblewrap cannot be used on this host: {error}.", "wall_unavailable", namespace_fix()
            ) from error
        threshold.crossed = True

    def tend(self, now: float) -> float:
        still = self._stillness
        frozen = self._frozen and still is None
        watching = self._watches if frozen else [*self._own_watches, *([still] if still else []), *self._watches]
        for each in watching:
            each.look(now)
        return min((each.due(now) for each in watching), default=float("inf"))

    @cached_property
    def _settings(self) -> Settings:
        return findings.find_out(self._places, "", rootless=self._rootless, hierarchy=cgroups.find())

    @property
    def _sandbox(self) -> Sandbox:
        """As `restack` and `staging` want it. Every process is below the first; bubblewrap itself is none of them."""
        return Sandbox(
            self._id,
            self.guest,
            None if self._rootless else self._uid,
            self._order["source"],
            self._order["workdir"],
            self._quota,
            loop=self.facts["limits"]["disk"] == "kernel",
            rules=self._rules,
            view=self._view,
        )

    def _processes(self) -> list[int]:
        return self._sandbox.processes()

    orders = frozenset(("restack", "stage"))

    def obey(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[int]]:
        try:
            return self._restack(dict(request)) if request["op"] == "restack" else self._stage(request)
        except BirthFailed as failed:
            raise StartFailed(str(failed), failed.code) from None
        except (KeyError, TypeError, ValueError) as error:
            raise StartFailed(f"A request that makes no sense: {error!r}.", "invalid_input") from None

    def _restack(self, request: dict[str, Any]) -> tuple[dict[str, Any], Sequence[int]]:
        """Exchange what it stands on."""
        if self._frozen:
            raise StartFailed("The sandbox is paused; call resume() first.", "busy")
        began = time.time()
        work = errands.Restacking(self._settings, self._sandbox, request)
        answer, view = work.outcome(*work.errand.wait(self.wait))
        if "ok" not in answer:
            raise StartFailed(answer["error"]["message"], answer["error"]["code"])
        if view is not self._view:
            if self._view is not None:
                self._view.close()
            self._view = view
            self._rules = places.Rules.of(request) if request["kind"] == "rules" else self._rules
        if request["kind"] == "discard":
            self._recorder.begin_anew(self._rules, began)
        told: dict[str, Any] = answer["ok"]
        return told, ()

    def _stage(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[int]]:
        """Show what it has changed."""
        if request.get("patient") and self._recorder.is_busy():
            return {"recording": True}, ()
        return {"source": self._order["source"]}, staging.descriptors(self._settings, self._sandbox)

    def forsake(self) -> None:
        self._stacked = os.path.exists(f"{self.box}/stack")
        alive = self._watched >= 0 and not select.select([self._watched], [], [], 0)[0]
        if not alive or self.facts["limits"]["disk"] != "kernel":
            return
        with contextlib.suppress(OSError):
            if self._stacked:
                parting.give_up(self._places, self._id)
            else:
                disk.shut_down(f"/proc/{self.guest}/root/tmp")

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.box}/stack")
            self._stacked = True
        if self._stacked:
            Layers(self._places).collect()

    def end(self) -> None:
        if self._frozen:
            with contextlib.suppress(OSError):
                self.resume()
        with contextlib.suppress(ProcessLookupError):
            if self._watched >= 0:
                signal.pidfd_send_signal(self._watched, signal.SIGKILL)
        for pid in inspection.children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._watched >= 0:
            # The last to die in there is its first: the kernel sees to that.
            select.select([self._watched], [], [], _DEATH)
            os.close(self._watched)
            self._watched = -1
        _reap()
        network.forget(self._id, self.box)
        if self._group is not None:
            self._group.kill()
            self._group.remove()

    def pause(self) -> None:
        self._freeze(frozen=True)

    def resume(self) -> None:
        self._freeze(frozen=False)

    def _freeze(self, *, frozen: bool) -> None:
        try:
            if self._group is not None:
                self._group.freeze(frozen)
            else:
                usage.signal_all(self.guest, signal.SIGSTOP if frozen else signal.SIGCONT, _FREEZING)
        except TimeoutError as error:
            raise OSError(f"the sandbox cannot be paused now: {error}") from None
        self._frozen = frozen
        self._stillness = Stillness(self.guest) if frozen and self._group is None else None

    def usage(self) -> dict[str, Any]:
        pids = usage.descendants(self.guest)
        memory = self._group.memory_used() if self._group is not None else usage.memory(pids)
        on_disk = self.facts["limits"]["disk"] == "kernel"
        try:
            disk = usage.mounted_disk(self.guest, self._order["workdir"]) if on_disk else usage.disk(self.box)
            disk += layers.below(self.box)
        except usage.TooDeep as error:
            raise OSError(str(error)) from None
        return {"memory": memory, "cpu_seconds": usage.cpu_seconds(pids), "processes": len(pids), "disk": disk}

    def epitaph(self) -> str | None:
        if self._monitor == 0:
            return None
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            pid, status = os.waitpid(self._monitor, os.WNOHANG)
            if pid:
                self._monitor = 0
                return _told(os.waitstatus_to_exitcode(status))
            time.sleep(0.005)
        return None


def _told(code: int) -> str:
    """What became of the guest, by how bubblewrap has ended."""
    if code < 0:
        return f"signal {-code} ended its bubblewrap"
    return f"signal {code - 128} ended its guest" if code > 128 else f"its guest exited with {code}"


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass
