"""What came of a job, as values and as JSON. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from ..errors import InvalidInput
from ..policy.text import article, shown

Verdict = Literal["passed", "failed", "error", "cancelled", "timed_out"]
StateName = Literal["starting", "running", "interrupted", "passed", "failed", "error", "cancelled", "timed_out"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
FORMAT = 1
_ID = re.compile(r"vj-[0-9a-f]{12}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Digests(NamedTuple):
    """SHA-256 each: of what the job does, of what it was given, of all that it gave, and of its two streams.

    None where the job did not get as far.
    """

    job: str
    inputs: str | None = None
    outputs: str | None = None
    stdout: str | None = None
    stderr: str | None = None


class Result(NamedTuple):
    """How a job ended. `seal` covers everything else in it; `verify` checks it.

    `reason` says in a sentence why it has not passed. `stdout` and `stderr` are what it said, cut to 1 MiB each;
    `truncated` says that something is missing there. `files` are the digests of the outputs.
    """

    id: str
    name: str
    verdict: Verdict
    reason: str
    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool
    duration: float
    digests: Digests
    files: Mapping[str, str]
    driver: str | None
    isolation: str | None
    started: float
    ended: float
    attempt: int
    atoll: str
    job: Mapping[str, Any]
    key: str = ""
    seal: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


class State(NamedTuple):
    """A job as it stands now. `state` is a verdict once there is a `result`; `pid` is who runs it."""

    id: str
    name: str
    state: StateName
    created: float
    pid: int | None = None
    result: Result | None = None


def check_id(id: object) -> str:
    """Raises InvalidInput."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InvalidInput(f"{shown(id)} is no id of a job; one looks like vj-0123456789ab.")
    return id


def is_id(text: object) -> bool:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def result_to_json(result: Result) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **result._asdict(),
        "digests": result.digests._asdict(),
        "files": dict(result.files),
        "job": dict(result.job),
    }


def result_from_json(value: object) -> Result:
    """From a file that anybody may have written.

    Raises:
        InvalidInput: it is no result.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidInput("The file is no result of a job of this version of atoll.")
    fields = {key: each for key, each in value.items() if key != "format"}
    wrong = set(fields) ^ set(Result._fields)
    if wrong:
        raise InvalidInput(f"The result has {shown(min(wrong))} wrong: each field is there once, and no others.")
    for name, fits in _FITS.items():
        if not fits(fields[name]):
            raise InvalidInput(f"The result has {article(name)} that cannot be: {shown(fields[name])}.")
    digests = Digests(**fields.pop("digests"))
    return Result(digests=digests, **fields)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _hash(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _digests(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != set(Digests._fields):
        return False
    return _hash(value["job"]) and all(each is None or _hash(each) for each in value.values())


def _file_digests(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(path, str) and _hash(each) for path, each in value.items())


_FITS = {
    "id": is_id,
    "name": _text,
    "verdict": VERDICTS.__contains__,
    "reason": _text,
    "exit_code": lambda value: value is None or _whole(value),
    "stdout": _text,
    "stderr": _text,
    "truncated": lambda value: isinstance(value, bool),
    "duration": _time,
    "digests": _digests,
    "files": _file_digests,
    "driver": _text_or_none,
    "isolation": _text_or_none,
    "started": _time,
    "ended": _time,
    "attempt": _whole,
    "atoll": _text,
    "job": lambda value: isinstance(value, dict),
    "key": _text,
    "seal": _text,
}
