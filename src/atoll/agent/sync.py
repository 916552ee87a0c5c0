"""Agent: the same as AsyncAgent, blocking, with an event loop in a thread, so that it works in notebooks, too."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ..errors import AgentError
from ..sync.docs import documented_by
from . import checks
from .agent import AsyncAgent
from .events import Listener
from .results import Result, Status, Trajectory
from .streaming import Running


class Task:
    """Work on an event loop in a thread of its own."""

    def __init__(self, work: Callable[[], Awaitable[Result]]) -> None:
        from anyio.from_thread import start_blocking_portal

        self._manager = start_blocking_portal()
        portal = self._manager.__enter__()
        self._future = portal.start_task_soon(work)
        self._future.add_done_callback(lambda _: None)

    def wait(self) -> Result:
        """What it gives. Ctrl-C, and everything else that is raised here, cancels it first.

        Raises:
            AgentError: it was stopped.
        """
        from concurrent.futures import CancelledError

        try:
            return self._future.result()
        except CancelledError:
            raise AgentError("The run was interrupted; it can be resumed.") from None
        except BaseException:
            self._future.cancel()
            raise
        finally:
            self._manager.__exit__(None, None, None)

    def stop(self) -> None:
        self._future.cancel()


@documented_by(AsyncAgent)
class Agent:
    def __init__(self, model: str | None = None, **options: Any) -> None:
        self._core = AsyncAgent(model, **options)

    @property
    def warnings(self) -> list[str]:
        """What of a configuration file was not taken, and why."""
        return self._core.warnings

    def completion(self, prompt: str, *, context: Any = None, validate: checks.Check | None = None) -> Result:
        return _wait(lambda: self._core.completion(prompt, context=context, validate=validate))

    def run(self, task: str, *, context: Any = None, validate: checks.Check | None = None) -> Result:
        return _wait(lambda: self._core.run(task, context=context, validate=validate))

    def stream(
        self, task: str, *, kind: str = "agent", context: Any = None, validate: checks.Check | None = None
    ) -> Running:
        """The same, told as it happens: `for event in agent.stream(task): …`; then look at its `result`."""
        return Running(self, self.prepare(task, kind=kind, context=context, validate=validate))

    def begin(
        self, task: str, *, kind: str = "agent", context: Any = None, validate: checks.Check | None = None
    ) -> str:
        """Begin a run in a thread of this process; its id. `status` tells how it stands, `cancel` ends it.

        It does not hold this process up at its end: what is not done then can be resumed.
        """
        id = self.prepare(task, kind=kind, context=context, validate=validate)
        work = self.begin_task(id, None)

        def wait() -> None:
            with suppress(Exception):  # what went wrong is written down, and `status` tells it
                work.wait()

        threading.Thread(target=wait, name="atoll-agent", daemon=True).start()
        return id

    def begin_task(self, id: str, listen: Listener | None) -> Task:
        """For internal use: work on a run that is written down, in a thread."""
        return Task(lambda: self._core.follow(id, listen))

    def prepare(
        self, task: str, *, kind: str = "agent", context: Any = None, validate: checks.Check | None = None
    ) -> str:
        return self._core.prepare(task, kind=kind, context=context, validate=validate)

    def resume(self, trajectory_id: str, *, validate: Callable[[str], Any] | None = None, **changes: Any) -> Result:
        return _wait(lambda: self._core.resume(trajectory_id, validate=validate, **changes))

    def fork(self, trajectory_id: str, at: int, *, prompt: str | None = None, **changes: Any) -> Result:
        return _wait(lambda: self._core.fork(trajectory_id, at, prompt=prompt, **changes))

    def prepare_fork(self, trajectory_id: str, at: int, *, prompt: str | None = None, **changes: Any) -> str:
        return self._core.prepare_fork(trajectory_id, at, prompt=prompt, **changes)

    def status(self, trajectory_id: str) -> Status:
        return self._core.status(trajectory_id)

    def cancel(self, trajectory_id: str) -> bool:
        return self._core.cancel(trajectory_id)

    def trajectory(self, trajectory_id: str) -> Trajectory:
        return self._core.trajectory(trajectory_id)

    def latest_trajectory(self) -> Trajectory | None:
        return self._core.latest_trajectory()


def _wait(work: Callable[[], Awaitable[Result]]) -> Result:
    return Task(work).wait()
