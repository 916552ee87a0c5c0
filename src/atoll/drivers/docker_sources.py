"""What a steward does about the source of a container: shows its changes, throws them away, has other rules for it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine import jail
from ..engine.errands import in_child
from ..engine.places import Rules
from ..engine.steward.wall import FILES, StartFailed, Waiting
from . import docker_relaying
from .docker_ground import BASE, RECORDS, Ground

STAGE, DISCARD, RULES = "stage", "discard", "rules"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_SOURCE = "This sandbox was made without a source, so there is nothing to compare its files with."

Answer = tuple[dict[str, Any], Sequence[int]]


class Sourced:
    """Of one sandbox. `first` is its first process, set when there is one; `wait` is its wall's."""

    def __init__(self, box: str, job: Mapping[str, Any], ground: Ground | None, wait: Waiting) -> None:
        self._wait = wait
        self._box = box
        self._job = job
        self._ground = ground
        self._recorder = 0
        self.first = 0

    def obey(self, request: Mapping[str, Any]) -> Answer:
        """Raises StartFailed, OSError."""
        if self._job["source"] is None:
            raise StartFailed(_NO_SOURCE, "invalid_input")
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
        if patient and self._is_recording():
            return {}, ()
        with jail.inside(self.first):
            found = [os.open(self._job["workdir"], _FOLDER)]
        found += [os.open(f"/proc/self/fd/{ground.top}/{name}", _FOLDER) for name in ground.uppers()]
        return {"source": self._job["source"], "base": f"{self._box}/{FILES}/{BASE}"}, found

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
        path = f"{self._box}/{FILES}/{BASE}"
        if anew:
            self.end()
            for name in RECORDS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._box}/{FILES}/{name}")
        if self._job["source"] is None or self._ground is None or os.path.exists(path):
            return
        self._recorder = os.fork()
        if self._recorder == 0:
            try:
                from .. import review

                os.nice(15)
                os.closerange(3, 1 << 16)
                rules = self._ground.rules
                matcher, ignores = (rules.matcher(), rules.ignores()) if rules else (None, None)
                review.record_base(str(self._job["source"]), path, matcher, ignores, int(since * 1e9))
            finally:
                os._exit(0)

    def end(self) -> None:
        """Stop writing it down."""
        if self._is_recording():
            os.kill(self._recorder, signal.SIGKILL)
            os.waitpid(self._recorder, 0)
        self._recorder = 0

    def _is_recording(self) -> bool:
        if self._recorder and os.waitpid(self._recorder, os.WNOHANG) != (0, 0):
            self._recorder = 0
        return bool(self._recorder)
