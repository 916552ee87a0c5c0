"""Containers that are started ahead, so that one is there when it is wanted.

`$ATOLL_DOCKER_POOL` is how many are kept ready of a kind, once one of the plain kind, or two of another, were made. A
kind is everything that a container cannot change any more: image, limits, network. What has a source, a snapshot or
labels is made when it is wanted.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

from ..driver import Register
from ..engine import messages, roottree
from ..engine.steward.client import StewardDriver
from ..engine.steward.lot import Lot, leave
from ..engine.steward.steward import SOCKET
from ..errors import AtollError, InvalidInput
from ..home import state_dir
from ..policy.spec import spec_to_json
from ..types import Handle, Spec
from . import docker_finding
from .docker_jobs import check

_LOT = "docker/.lot"
SECONDS = 600.0
"""How long one waits for somebody to want it."""
_MOST = 64
_CHANGEABLE = ("env", "timeout", "lifetime")


class Pooled(StewardDriver):
    """Part of `DockerDriver`."""

    def top_up(self, spec: Spec, count: int) -> None:
        """Have so many made ready, of a kind that somebody has wanted before. May block for a moment, not until they
        are."""
        lot = _lot(spec)
        if not _is_plain(spec) and not os.path.isdir(lot.directory):
            os.makedirs(lot.directory, mode=0o700)
            return
        for line in self._fill(lot, spec, count, SECONDS):
            line.close()

    def _fill(self, lot: Lot, spec: Spec, count: int, seconds: float) -> list[socket.socket]:
        started: list[socket.socket] = []
        waiting = spec._replace(env={}, lifetime=seconds)
        with lot.filling() as there:
            try:
                while there + len(started) < min(count, _MOST):
                    started.append(self._park(lot, waiting))
            except BaseException:
                for line in started:
                    line.close()
                raise
        return started

    def _park(self, lot: Lot, spec: Spec) -> socket.socket:
        name, box = self._new_box()
        order = self._order(box, spec, self._furnish(spec, box, None))
        entry = lot.place(name)
        try:
            return self._start({**order, "parked": entry})
        except BaseException:
            leave(entry)
            raise

    async def _adopt(self, spec: Spec, register: Register) -> Handle | None:
        """One that was started ahead, if there is one of the kind."""
        for name in _waiting(spec):
            box = f"{state_dir()}/{self.name}/{name}"
            unknown = Handle(self.name, name, {"box": box})
            try:
                line = messages.connect(f"{box}/{SOCKET}")
            except OSError:
                continue
            with line:
                request = {"op": "adopt", "lifetime": spec.lifetime, "env": dict(spec.env)}
                try:
                    facts, _ = await self._ask_on(line, unknown, request)
                except AtollError:
                    continue  # it has ended meanwhile
                handle = Handle(self.name, name, {**facts, "box": box})
                register(handle)
                await self._ask_on(line, handle, {"op": "keep", **self.last_words(spec)})
                return handle
        return None

    def last_words(self, spec: Spec) -> dict[str, Any]:
        count = wanted()
        if not count or not is_poolable(spec) or spec.labels:
            return {}
        return {"pool": count, "spec": spec_to_json(spec._replace(env={}))}


def wanted() -> int:
    """How many are to be kept ready, by `$ATOLL_DOCKER_POOL`. Raises InvalidInput."""
    text = os.environ.get("ATOLL_DOCKER_POOL") or "0"
    if not text.isdigit() or int(text) > _MOST:
        raise InvalidInput(f"ATOLL_DOCKER_POOL is {text!r}; give a whole number up to {_MOST}.")
    return int(text)


def is_poolable(spec: Spec) -> bool:
    """Whether one that was made before anybody knew of this spec could be it."""
    return spec.source is None and spec.snapshot is None and spec.codebase is None and not spec.packages


def _is_plain(spec: Spec) -> bool:
    """Whether nothing was asked for that makes a kind of its own."""
    return spec._replace(**{name: Spec._field_defaults[name] for name in _CHANGEABLE}) == Spec()


def _waiting(spec: Spec) -> Iterator[str]:
    """Those of its kind, the caller's from now on."""
    if is_poolable(spec) and os.path.isdir(f"{state_dir()}/{_LOT}"):
        check(spec)
        yield from _lot(spec).take()


def _lot(spec: Spec) -> Lot:
    import hashlib
    import json

    kind = {name: value for name, value in spec_to_json(spec).items() if name not in _CHANGEABLE}
    engine = docker_finding.engine().path
    told = json.dumps([kind, engine, docker_finding.runtime(), roottree.tag()], sort_keys=True)
    digest = hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:24]
    return Lot(f"{state_dir()}/{_LOT}/{digest}")
