"""Jobs from their beginning to their end: here or in a process of their own, looked at, cancelled, taken up again."""

from __future__ import annotations

import os
import signal
import sys
import time

from .. import procid
from ..errors import AtollError, Busy, InvalidInput, TimedOut
from ..policy.text import shown
from . import copies, shelf
from .jobs import Job, check_job, job_digest, job_to_json
from .results import Digests, Result, State, StateName, is_id

_STARTING = 30.0
_ENDING = 60.0
_TICK = 0.02


def run(job: Job | str) -> Result:
    """Run a job to its end, in this process. An id runs that one again, if it was interrupted.

    A job that fails is data: look at `verdict`.

    Raises:
        InvalidInput: the job cannot be, or the one of that id has ended.
        Busy: another process runs the one of that id.
    """
    from .executing import execute

    id = _registered(job)
    attempt = shelf.claim(id, own=False)
    if attempt > 1:
        sweep(id)
    checked, _ = shelf.job_of(id)
    try:
        result = execute(id, checked, attempt, lambda: shelf.is_cancelled(id))
    except BaseException as error:
        _save_unfinished(id, checked, attempt, f"It was broken off: {type(error).__name__}.")
        raise
    return shelf.save(result)


def begin(job: Job | str) -> str:
    """Run a job in a process of its own, which outlives this one; its id. `status`, `wait` and `cancel` take it.

    An id runs that one again, if it was interrupted.

    Raises:
        InvalidInput, Busy: as `run`.
        AtollError: the process could not be started.
    """
    id = _registered(job)
    claim = shelf.claim_of(id)
    if shelf.result_of(id) is not None:
        raise InvalidInput(f"The job {id} has ended; begin another one instead.")
    if claim is not None and procid.is_alive(claim.process):
        raise Busy(f"The process {claim.process.pid} runs the job {id}.")
    path = [each for each in sys.path if each]
    code = f"import sys; sys.path[:] = {path!r}; from atoll.validation.worker import main; main({id!r})"
    log = os.open(shelf.log_of(id), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        files = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        # -I: a directory that happens to be the current one has no say in what is imported.
        pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", code], os.environ, file_actions=files)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(log)
        os.close(null)
    if status != 0:
        raise AtollError(f"The process of the job {id} could not be started; {shelf.log_of(id)} says why.")
    return id


def status(id: str) -> State:
    """How a job stands. Raises InvalidInput."""
    job, created = shelf.job_of(id)
    result = shelf.result_of(id)
    claim = None if result else shelf.claim_of(id)
    if result is None and claim is not None and procid.is_alive(claim.process):
        return State(id, job.name, "running", created, claim.process.pid)
    # It may have ended between the two looks.
    result = result or shelf.result_of(id)
    if result is not None:
        return State(id, job.name, result.verdict, created, None, result)
    young = claim is None and time.time() - created < _STARTING
    state: StateName = "starting" if young else "interrupted"
    return State(id, job.name, state, created)


def jobs() -> list[State]:
    """All that there are, newest first. One that cannot be read raises: nothing is left out in silence."""
    found = []
    for id in shelf.ids():
        try:
            found.append(status(id))
        except InvalidInput:
            if id in shelf.ids():
                raise
    return sorted(found, key=lambda state: -state.created)


def load(id: str) -> Result:
    """The result of a job that has ended. Raises InvalidInput."""
    result = shelf.result_of(id)
    if result is None:
        raise InvalidInput(f"The job {id} has no result: it is {status(id).state}.")
    return result


def wait(id: str, timeout: float | None = None) -> State:
    """Until a job has ended, or was interrupted.

    Raises:
        TimedOut: it runs on.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while (state := status(id)).state in ("starting", "running"):
        if deadline is not None and time.monotonic() > deadline:
            raise TimedOut(f"The job {id} is still {state.state} after {timeout:g} s.")
        time.sleep(_TICK)
    return state


def cancel(id: str) -> State:
    """End a job with all that it has started. One that has ended already stays as it is, whatever its verdict.

    Raises:
        InvalidInput: there is no such job.
        Busy: it runs in a process that does other things too, and has not ended within a minute.
    """
    found = status(id)
    if found.result is not None:
        return found
    shelf.wish_cancelled(id)
    claim = shelf.claim_of(id)
    if claim is not None and claim.own and procid.is_alive(claim.process):
        _kill(claim.process)
    elif claim is not None:
        _await_end(id, claim.process)
    sweep(id)
    if shelf.result_of(id) is None:
        job, _ = shelf.job_of(id)
        _save_unfinished(id, job, claim.attempt if claim else 0, "It was cancelled.")
    return status(id)


def recover() -> list[State]:
    """The jobs whose process died, when nothing is left of them in the way. `run(id)` or `begin(id)` runs one again."""
    found = [state for state in jobs() if state.state == "interrupted"]
    for state in found:
        sweep(state.id)
    return found


def forget(id: str) -> None:
    """Remove a job and its result.

    Raises:
        InvalidInput: there is none.
        Busy: it runs.
    """
    shelf.remove(id)


def _registered(job: Job | str) -> str:
    if isinstance(job, str):
        if not is_id(job):
            raise InvalidInput(f"{shown(job)} is no id of a job; give one such as vj-0123456789ab, or a Job.")
        shelf.job_of(job)
        return job
    return shelf.add(check_job(job))


def _save_unfinished(id: str, job: Job, attempt: int, reason: str) -> None:
    import atoll

    now = time.time()
    unfinished = Result(
        id, job.name, "cancelled", reason, None, "", "", truncated=False, duration=0.0,
        digests=Digests(job_digest(job)), files={}, driver=None, isolation=None, started=now, ended=now,
        attempt=attempt, atoll=atoll.__version__, job=job_to_json(job),
    )  # fmt: skip
    shelf.save(unfinished)


def _kill(process: procid.ProcessId) -> None:
    """The very process, and no other that has its number by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if procid.is_alive(process):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        import select

        select.select([handle], [], [], _ENDING)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _await_end(id: str, process: procid.ProcessId) -> None:
    """Take its sandbox away from a job that runs in somebody's process, until it has noticed."""
    deadline = time.monotonic() + _ENDING
    while shelf.result_of(id) is None and procid.is_alive(process):
        _destroy_sandboxes(id)
        if time.monotonic() > deadline:
            raise Busy(f"The job {id} runs in the process {process.pid}, and does not end.")
        time.sleep(_TICK)


def sweep(id: str) -> None:
    """Remove what a job has left whose process is no more: its sandboxes, and the copy of its source."""
    _destroy_sandboxes(id)
    copies.remove(shelf.place_of(id))


def _destroy_sandboxes(id: str) -> None:
    from ..sync.sandbox import Sandbox
    from .executing import LABEL

    for info in Sandbox.list({LABEL: id}):
        if info.status != "gone":
            try:
                Sandbox.connect(info.id).destroy()
            except AtollError:
                # It ended by itself, or its process has just destroyed it.
                continue
