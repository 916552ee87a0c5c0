"""Jobs on disk: one directory each, in which every file appears whole or not at all.

`job.json` is what to run, `claim.json` who runs it, `result.json` what came of it, `cancel` the wish that it end,
`copy` leads to the copy of its source.
Whoever decides something about a job holds the lock of its directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import procid
from ..codebases import locks
from ..errors import Busy, InvalidInput, StoreError
from ..home import state_dir
from ..policy.text import shown
from . import copies
from .jobs import Job, job_from_json, job_to_json
from .results import Result, check_id, is_id, result_from_json, result_to_json
from .sealing import sealed

LARGEST = 256 << 20


class Claim(NamedTuple):
    """Who runs a job, for which time, and whether that process does nothing else, so that it may be killed."""

    process: procid.ProcessId
    attempt: int
    own: bool


def directory() -> str:
    """Where jobs are kept. Raises StoreError."""
    path = os.path.join(state_dir(), "validation")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}.") from error
    return path


def add(job: Job) -> str:
    """Keep a checked job; its new id. Raises StoreError."""
    id = f"vj-{os.urandom(6).hex()}"
    draft = os.path.join(directory(), f".{id}")
    os.mkdir(draft, 0o700)
    _write(os.path.join(draft, "job.json"), {"created": time.time(), "job": job_to_json(job)})
    os.rename(draft, _place(id))
    return id


def ids() -> list[str]:
    """In no order."""
    return [name for name in os.listdir(directory()) if is_id(name)]


def resolve(prefix: str, *, nor: str = "") -> str:
    """The id that begins so, with or without "vj-". Raises InvalidInput, which says also what else there is not."""
    start = prefix if prefix.startswith("vj-") else f"vj-{prefix}"
    found = sorted(id for id in ids() if id.startswith(start))
    if not found:
        raise InvalidInput(f"There is no job {shown(prefix)}{nor}.", hint="`atoll validate list` shows them.")
    if len(found) > 1:
        raise InvalidInput(f"Several jobs begin with {shown(prefix)}: {', '.join(found[:5])}.")
    return found[0]


def job_of(id: str) -> tuple[Job, float]:
    """A job, and when it was given. Raises InvalidInput, StoreError."""
    value = _read(os.path.join(place_of(id), "job.json"))
    if not isinstance(value, dict) or not isinstance(value.get("created"), int | float):
        raise StoreError(f"The job {id} cannot be read: its file is no job.")
    return job_from_json(value.get("job")), float(value["created"])


def claim(id: str, *, own: bool) -> int:
    """Become the one who runs a job; gives which time it is.

    Raises:
        InvalidInput: it has ended already.
        Busy: another process runs it.
    """
    with _locked(id) as place:
        if _has_result(place):
            raise InvalidInput(f"The job {id} has ended; begin another one instead.")
        before = _claim(place)
        if before is not None and procid.is_alive(before.process):
            raise Busy(f"The process {before.process.pid} runs the job {id}.")
        attempt = 1 if before is None else before.attempt + 1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(place, "cancel"))
        _write(os.path.join(place, "claim.json"), {"process": procid.current(), "attempt": attempt, "own": own})
    return attempt


def claim_of(id: str) -> Claim | None:
    return _claim(place_of(id))


def result_of(id: str) -> Result | None:
    """Raises InvalidInput, StoreError: there is no such job, or its result is none or that of another job."""
    try:
        return _own_result(id, place_of(id))
    except FileNotFoundError:
        return None


def read_result(path: str) -> Result:
    """Raises FileNotFoundError, InvalidInput, StoreError."""
    return result_from_json(_read(path))


def save(result: Result) -> Result:
    """Seal a result and keep it, unless there is one already, which then counts; gives the one that counts."""
    with _locked(result.id) as place:
        if _has_result(place):
            return _own_result(result.id, place)
        final = sealed(result, directory())
        _write(os.path.join(place, "result.json"), result_to_json(final))
    return final


def write_copy(result: Result, path: str) -> None:
    """The same file elsewhere, for others to verify. Raises OSError."""
    _write(path, result_to_json(result), mode=0o644)


def wish_cancelled(id: str) -> None:
    with open(os.path.join(place_of(id), "cancel"), "wb"):
        pass


def is_cancelled(id: str) -> bool:
    return os.path.exists(os.path.join(_place(id), "cancel"))


def remove(id: str) -> None:
    """Raises InvalidInput, Busy."""
    with _locked(id) as place:
        before = _claim(place)
        if not _has_result(place) and before is not None and procid.is_alive(before.process):
            raise Busy(f"The job {id} runs; cancel it first.")
        gone = os.path.join(directory(), f".{id}.{os.urandom(4).hex()}")
        os.rename(place, gone)
    copies.remove(gone)
    shutil.rmtree(gone, ignore_errors=True)


def log_of(id: str) -> str:
    """Where the process of a job writes what it has to complain about."""
    return os.path.join(_place(id), "worker.log")


def _place(id: str) -> str:
    return os.path.join(directory(), check_id(id))


def place_of(id: str) -> str:
    """The directory of a job. Raises InvalidInput: there is none."""
    place = _place(id)
    if not os.path.isdir(place):
        raise InvalidInput(f"There is no job {id}.", hint="`atoll validate list` shows them.")
    return place


@contextlib.contextmanager
def _locked(id: str) -> Iterator[str]:
    place = place_of(id)
    with locks.held(os.path.join(place, "lock")):
        yield place


def _own_result(id: str, place: str) -> Result:
    path = os.path.join(place, "result.json")
    found = read_result(path)
    # Its seal is intact wherever it lies, and says nothing of where that is.
    if found.id != id:
        raise StoreError(f"{path} is the result of another job: of {found.id} instead of {id}.")
    return found


def _has_result(place: str) -> bool:
    return os.path.exists(os.path.join(place, "result.json"))


def _claim(place: str) -> Claim | None:
    try:
        value = _read(os.path.join(place, "claim.json"))
    except FileNotFoundError:
        return None
    return Claim(procid.ProcessId(*value["process"]), value["attempt"], value["own"])


def _read(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > LARGEST:
        raise InvalidInput(f"{path} has more than {LARGEST >> 20} MiB; that is no file of a job.")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no JSON: {shown(str(error))}.") from None


def _write(path: str, value: Any, mode: int = 0o600) -> None:
    draft = f"{path}.{os.urandom(4).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as file:
            file.write(json.dumps(value, indent=1).encode("ascii"))
            file.flush()
            os.fsync(fd)
        os.rename(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
