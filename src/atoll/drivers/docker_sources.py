"""What a steward does about the source of a container: shows its changes, throws them away, has other rules for it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine import jail
from ..engine.errands import in_child
from ..engine.places import Rules
from ..engine.steward.originals import Recorder
from ..engine.steward.staged import NO_SOURCE, STAGE
from ..engine.steward.wall import FILES, StartFailed, Waiting
from . import docker_relaying
from .docker_ground import Ground

DISCARD, RULES = "discard", "rules"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Answer = tuple[dict[str, Any], Sequence[int]]


class Sourced:
    """Of one sandbox. `first` is its first process, set when there is one; `wait` is its wall's."""

    def __init__(self, box: str, job: Mapping[str, Any], ground: Ground | None, wait: Waiting) -> None:
        self._wait = wait
        self._job = job
        self._ground = ground
        self._recorder = None if job["source"] is None else Recorder(f"{box}/{FILES}", job["source"])
        self.first = 0

    def obey(self, request: Mapping[str, Any]) -> Answer:
        """Raises StartFailed, OSError."""
        if self._job["source"] is None:
            raise StartFailed(NO_SOURCE, "invalid_input")
        if self._ground is None:
            raise StartFailed("Changes to a source can be told only where root has made the sandbox.", "unsupported")
        if not self.first:
            raise StartFailed("This runtime lets nobody change or look at what its sandbox stands on.", "unsupported")
        if request["op"] == STAGE:
            return self._stage(self._ground, patient=bool(request.get("patient")))
        if request["op"] == DISCARD:
            self._exchange(self._ground, self._ground.rules, afresh=True, force=bool(request["force"]))
            self.record(time.time(), anew=True)
            return {}, ()
        rules = Rules.of(dict(request))
        self._exchange(self._ground, rules, afresh=False, force=bool(request["force"]))
        self._ground.rules = rules
        return {"view": self._ground.recipe}, ()

    def _stage(self, ground: Ground, *, patient: bool) -> Answer:
        assert self._recorder is not None  # noqa: S101  # it has a source
        if patient and self._recorder.is_busy():
            return {}, ()
        with jail.inside(self.first):
            found = [os.open(self._job["workdir"], _FOLDER)]
        found += [os.open(f"/proc/self/fd/{ground.top}/{name}", _FOLDER) for name in ground.uppers()]
        return {"source": self._job["source"], "base": self._recorder.base}, found

    def _exchange(self, ground: Ground, rules: Rules | None, *, afresh: bool, force: bool) -> None:
        before = ground.uppers()

        def work() -> Answer:
            try:
                tree, recipe = ground.rebuilt(rules, afresh=afresh)
            except StartFailed as failed:
                return {"error": {"code": failed.code, "message": str(failed)}}, ()
            new = ground.uppers()[:1]
            try:
                docker_relaying.exchange(self.first, self._job["workdir"], tree, force=force)
            except BaseException:
                ground.drop(new)
                raise
            return {"ok": {"recipe": recipe}}, ()

        def later() -> None:
            if afresh:
                ground.drop(before)

        answer, _ = in_child(work, later, self._wait)
        if "ok" not in answer:
            error = answer.get("error", {})
            raise StartFailed(str(error.get("message", "It failed.")), str(error.get("code", "sandbox_error")))
        ground.recipe = answer["ok"]["recipe"]

    def record(self, since: float, *, anew: bool = False) -> None:
        """Have written down, in the background, how the source was when the sandbox began to see it, unless it was."""
        if self._recorder is not None and self._ground is not None:
            self._recorder.record(since, self._ground.rules, anew=anew)

    def end(self) -> None:
        """Stop writing it down."""
        if self._recorder is not None:
            self._recorder.end()
