"""Whether results can be relied on: their seals, their inputs, and if asked for, the same again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..errors import AtollError, InvalidInput
from ..policy.limits import check_timeout
from ..policy.text import kind_of, shown
from . import inputs, shelf
from .jobs import Job, check_job, job_digest, job_from_json
from .results import Result, check_id, is_id
from .sealing import flaw

ResultLike = Result | str | os.PathLike[str]
"""A result, the id of a job that has ended, or the path of a result in a file."""

Expected = Job | str | None
"""Which job a result must be of: its id; or what it does, and of which inputs; or any."""

_CLOCK = 60.0


class Verified(NamedTuple):
    """What a result is worth: `ok` when there are no `problems`, each a sentence. `again` is the second run, if any."""

    result: Result | None
    problems: tuple[str, ...] = ()
    again: Result | None = None

    @property
    def ok(self) -> bool:
        return not self.problems


class Gate(NamedTuple):
    """Whether to let something pass: `open` when there are no `problems`, each a sentence about one result."""

    problems: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()

    @property
    def open(self) -> bool:
        return not self.problems


def verify(result: ResultLike, *, job: Job | str | None = None, rerun: bool = False) -> Verified:
    """Whether a result is as it was sealed here, and what the job was given is still the same.

    A result by its id is that job's. A path proves nothing of which job its file is of, so say it where it matters.

    Args:
        job: which job it must be of. An id: that one and no other. A `Job`: one that does the same, and was given what
            this one would be given now.
        rerun: run the job once more, and compare what comes out. The second result is kept as well.

    Raises:
        InvalidInput: `job` is none.
    """
    expected = _check_expected(job)
    try:
        found = _load(result)
    except AtollError as error:
        return Verified(None, (str(error),))
    broken = flaw(found, shelf.directory())
    if broken is not None:
        # What else it says may be anybody's words, such as which directory to read and what to run.
        return Verified(found, (broken,))
    own = job_from_json(found.job)
    problems = _mistaken(found, own, expected) or _stale(found, expected if isinstance(expected, Job) else own)
    again = None
    if rerun and not problems:
        again, differences = _compare(found, own)
        problems += differences
    return Verified(found, tuple(problems), again)


def gate(
    results: Iterable[ResultLike] | Mapping[str | os.PathLike[str], Job | str | None], *, max_age: float | None = None
) -> Gate:
    """All of the results must be passed, sealed here, and fresh: of the source as it is now, and not older than asked.

    Args:
        results: a list of them; or a mapping from ids and paths to the job that each must be of, as for `verify`.
        max_age: seconds.

    Raises:
        InvalidInput: that is no list of results, no job, or no age.
    """
    if isinstance(results, Result | str | os.PathLike) or not isinstance(results, Iterable):
        raise InvalidInput("results is one result; give a list of them, even of one.")
    check_timeout(max_age, "max_age")
    pairs: list[tuple[ResultLike, Expected]]
    pairs = list(results.items()) if isinstance(results, Mapping) else [(each, None) for each in results]
    if not pairs:
        return Gate(("There are no results, so nothing has passed.",))
    problems: list[str] = []
    found: list[Result] = []
    for each, job in pairs:
        checked = verify(each, job=job)
        result = checked.result
        sentences = list(checked.problems)
        if result is not None and checked.ok:
            found.append(result)
            sentences += _unfit(result, max_age)
        problems += (f"{_called(each, result)}: {sentence}" for sentence in sentences)
    return Gate(tuple(problems), tuple(found))


def _check_expected(job: object) -> Expected:
    if job is None:
        return None
    return check_id(job) if isinstance(job, str) else check_job(job)


def _load(result: ResultLike) -> Result:
    if isinstance(result, Result):
        return result
    if isinstance(result, str) and is_id(result):
        from .running import load

        return load(result)
    if not isinstance(result, str | os.PathLike):
        raise InvalidInput(f"result is {kind_of(result)}; give a Result, an id, or a path.")
    try:
        return shelf.read_result(os.fspath(result))
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {os.fspath(result)}, and no job has that id.") from None


def _mistaken(result: Result, own: Job, expected: Expected) -> list[str]:
    if job_digest(own) != result.digests.job:
        return ["The job in it is not the one that its digest is of."]
    if isinstance(expected, str) and result.id != expected:
        return [f"It is the result of the job {result.id}, and not of {expected}."]
    if isinstance(expected, Job) and job_digest(expected) != result.digests.job:
        return [f"It is the result of another job: {_program(own)}, or the same with other settings."]
    return []


def _program(job: Job) -> str:
    return shown(job.command if job.code is None else job.code)


def _stale(result: Result, job: Job) -> list[str]:
    if result.digests.inputs is None:
        return []
    try:
        now = inputs.measure(job)
    except InvalidInput as error:
        return [f"Its inputs cannot be looked at. {error}"]
    return [] if now == result.digests.inputs else [f"Its inputs have changed since: {job.source or 'its files'}."]


def _compare(result: Result, job: Job) -> tuple[Result | None, list[str]]:
    from .running import run

    if result.verdict in ("cancelled", "error"):
        return None, [f"It is {result.verdict}, so there is nothing to compare with."]
    again = run(job)
    if again.digests.inputs not in (None, result.digests.inputs):
        return again, [f"Its inputs changed before it was run again: {job.source or 'its files'}."]
    if again.verdict != result.verdict:
        return again, [f"Run again it is {again.verdict} instead of {result.verdict}. {again.reason}".rstrip()]
    if result.verdict == "timed_out" or again.digests.outputs == result.digests.outputs:
        return again, []
    return again, _differences(result, again)


def _differences(one: Result, two: Result) -> list[str]:
    found = []
    if one.exit_code != two.exit_code:
        found.append(f"Run again its exit code is {two.exit_code} instead of {one.exit_code}.")
    found += [
        f"Run again its {name} is another."
        for name in ("stdout", "stderr")
        if getattr(one.digests, name) != getattr(two.digests, name) and one.job.get("compare_text")
    ]
    changed = sorted(path for path, _ in one.files.items() ^ two.files.items())
    found += [f"Run again it makes another {path}." for path in dict.fromkeys(changed)]
    return found


def _unfit(result: Result, max_age: float | None) -> list[str]:
    found = []
    if not result.passed:
        found.append(f"It is {result.verdict}. {result.reason}".rstrip())
    age = time.time() - result.ended
    if age < -_CLOCK:
        found.append("It has ended in the future, so one of the clocks is wrong.")
    if max_age is not None and age > max_age:
        found.append(f"It is {age:.0f} s old, and at most {max_age:.0f} are allowed.")
    return found


def _called(given: ResultLike, result: Result | None) -> str:
    if result is not None:
        return f"{result.id} ({result.name})" if result.name else result.id
    return shown(os.fspath(given)) if isinstance(given, str | os.PathLike) else type(given).__name__
