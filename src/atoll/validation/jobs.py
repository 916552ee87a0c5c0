"""What a job is, checked, and as JSON. Pure but for asking where the working directory is."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..policy.env import check_env
from ..policy.ignores import check_ignore
from ..policy.limits import check_resources, check_timeout
from ..policy.paths import host_path
from ..policy.requirements import check_requirements
from ..policy.text import kind_of, shown
from ..types import Resources
from .canonical import digest_of

ENVIRONMENT: Mapping[str, str] = {
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "SOURCE_DATE_EPOCH": "315532800",
    "TZ": "UTC",
}
"""What every job has in its environment, unless its own `env` says otherwise. The date is 1980, the first of ZIP."""

MOST_FILES = 10_000
MOST_FILE_BYTES = 64 << 20
_LONGEST_NAME = 200


class Job(NamedTuple):
    """What to run, on what, and behind which wall.

    Attributes:
        command: text for `/bin/sh -c`, or a program and its arguments. Either this or `code`.
        code: a Python program, run by a fresh interpreter in the workspace.
        source: a directory of the host that is the workspace at first; it is never changed.
        files: more files for the workspace, by relative path.
        ignore: what of `source` is not there at all, as `.gitignore` writes it.
        packages: Python packages to have.
        env: variables on top of `ENVIRONMENT`. They are kept with the result: no place for secrets.
        outputs: files that the job must make, as paths or globs of the workspace; each has its digest in the result.
        timeout: seconds that it may take.
        resources: limits, as `Sandbox.create` takes them.
        driver: the wall; the strongest that is ready unless given.
        compare_text: whether running it again must print the same. False for what prints times.
        name: words of your own.
    """

    command: str | Sequence[str] | None = None
    code: str | None = None
    source: str | os.PathLike[str] | None = None
    files: Mapping[str, str | bytes] = {}
    ignore: Iterable[str] = ()
    packages: Iterable[str] = ()
    env: Mapping[str, str] = {}
    outputs: Iterable[str] = ()
    timeout: float = 300.0
    resources: Resources | Mapping[str, Any] | None = None
    driver: str = "strongest"
    compare_text: bool = True
    name: str = ""


def check_job(job: object) -> Job:
    """The job with every value checked and in its plainest form; paths are absolute.

    Raises:
        InvalidInput: one of them cannot be, with what to write instead.
    """
    if not isinstance(job, Job):
        raise InvalidInput(f"job is {kind_of(job)}; give Job(command=…) or Job(code=…).")
    timeout = check_timeout(job.timeout)
    if timeout is None:
        raise InvalidInput("timeout is None; a job ends some day, so give seconds above 0.")
    _check_words(job.driver, job.name, job.compare_text)
    source = None if job.source is None else host_path(job.source, "source")
    ignore = check_ignore(job.ignore)
    if ignore and source is None:
        raise InvalidInput("ignore is for a source, and there is none; leave it out or give source=.")
    command, code = _program(job)
    return job._replace(
        command=command,
        code=code,
        source=source,
        files=_files(job.files),
        ignore=ignore,
        packages=check_requirements(job.packages),
        env=check_env(job.env),
        outputs=_outputs(job.outputs),
        timeout=timeout,
        resources=check_resources(job.resources),
    )


def _check_words(driver: object, name: object, compare_text: object) -> None:
    if not isinstance(driver, str) or not driver:
        raise InvalidInput(f"driver is {shown(driver)}; give a name such as 'strongest' or 'jail'.")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        raise InvalidInput(f"name is {shown(name)}; give text of at most {_LONGEST_NAME} characters.")
    if not isinstance(compare_text, bool):
        raise InvalidInput(f"compare_text is {shown(compare_text)}; give True or False.")


def _program(job: Job) -> tuple[str | tuple[str, ...] | None, str | None]:
    if (job.command is None) == (job.code is None):
        raise InvalidInput("A job is either a command or code; give Job(command=…) or Job(code=…).")
    if job.code is not None:
        if not isinstance(job.code, str):
            raise InvalidInput(f"code is {kind_of(job.code)}; give a Python program as text.")
        return None, job.code
    command = job.command
    if isinstance(command, str) and command.strip():
        return command, None
    if isinstance(command, list | tuple) and command and all(isinstance(word, str) for word in command):
        return tuple(command), None
    raise InvalidInput(f"command is {shown(command)}; give text for a shell, or a list of a program and its arguments.")


def _files(files: object) -> dict[str, bytes]:
    if not isinstance(files, Mapping):
        raise InvalidInput(f"files is {kind_of(files)}; give a mapping such as {{'check.py': 'print(1)'}}.")
    if len(files) > MOST_FILES:
        raise InvalidInput(f"There are {len(files)} files; give at most {MOST_FILES}, or a source.")
    found = {}
    for path, content in files.items():
        _check_relative(path, "files")
        if not isinstance(content, str | bytes):
            raise InvalidInput(f"files has {kind_of(content)} for {shown(path)}; give text or bytes.")
        found[path] = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if sum(map(len, found.values())) > MOST_FILE_BYTES:
        raise InvalidInput(f"files has more than {MOST_FILE_BYTES >> 20} MiB in it; put it into a source.")
    return found


def _outputs(outputs: object) -> tuple[str, ...]:
    if isinstance(outputs, str | bytes) or not isinstance(outputs, Iterable):
        raise InvalidInput(f"outputs is {shown(outputs)}; give a list of paths such as ['report.json'].")
    found = tuple(outputs)
    for path in found:
        _check_relative(path, "outputs")
    return found


def _check_relative(path: object, what: str) -> None:
    good = isinstance(path, str) and path and "\0" not in path
    if not good or path[:1] == "/" or ".." in str(path).split("/"):  # type: ignore[index]  # `good` says that it is text
        raise InvalidInput(f"{what} has {shown(path)}; give paths within the workspace, such as 'src/a.py'.")


def job_digest(job: Job) -> str:
    """Of what a checked job does, wherever its source lies and whatever it is called."""
    value = job_to_json(job)
    del value["name"], value["source"], value["files"]
    return digest_of(value)


def job_to_json(job: Job) -> dict[str, Any]:
    """A checked job as values of JSON."""
    return {
        **job._asdict(),
        "command": list(job.command) if isinstance(job.command, tuple) else job.command,
        "files": {path: base64.b64encode(data).decode() for path, data in job.files.items()},  # type: ignore[arg-type]
        "ignore": list(job.ignore),
        "packages": list(job.packages),
        "env": dict(job.env),
        "outputs": list(job.outputs),
        "resources": check_resources(job.resources)._asdict(),
    }


def job_from_json(value: object) -> Job:
    """What `job_to_json` gave, checked again: it may come from a file that anybody wrote.

    Raises:
        InvalidInput: it is no job.
    """
    if not isinstance(value, Mapping) or set(value) != set(Job._fields):
        raise InvalidInput("The file has no job in it as atoll writes jobs.")
    files = value["files"]
    if not isinstance(files, Mapping):
        raise InvalidInput("The job in the file has files that are no mapping.")
    try:
        decoded = {path: base64.b64decode(text, validate=True) for path, text in files.items()}
    except (TypeError, ValueError, binascii.Error):
        raise InvalidInput("The job in the file has a file that is not base64.") from None
    return check_job(Job(**{**value, "files": decoded}))
