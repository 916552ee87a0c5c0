"""A job in its sandbox, from the inputs to the digests of what came out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

from .. import registry
from ..errors import AtollError, FileError, Unsupported
from ..io import BlockingIO, drive
from ..policy.presets import EVERYTHING
from ..sync.sandbox import Sandbox
from ..types import Capability
from . import copies, inputs, shelf, walls
from .canonical import digest_of, text_digest
from .jobs import ENVIRONMENT, Job, job_digest, job_to_json
from .results import Digests, Result, Verdict

LABEL = "atoll.validation"
_KEPT = 1 << 20
_MOST_OUTPUT = 64 << 20
_MOST_FILES = 1000
_PIECE = 4 << 20
_SPARE = 120.0
_GLOB = "*?["


class _Ended(NamedTuple):
    """What the command itself came to, wherever it ran."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool
    duration: float


def execute(id: str, job: Job, attempt: int, cancelled: Callable[[], bool]) -> Result:
    """Run a checked job to its end. What goes wrong is in the result; only what is no `Exception` comes through."""
    import atoll

    started = time.time()
    blank = Result(
        id, job.name, "error", "", None, "", "", truncated=False, duration=0.0, digests=Digests(job_digest(job)),
        files={}, driver=None, isolation=None, started=started, ended=started, attempt=attempt, atoll=atoll.__version__,
        job=job_to_json(job),
    )  # fmt: skip
    box = _Box(job, blank, cancelled)
    try:
        box.work()
    except AtollError as error:
        box.result = box.result._replace(verdict="error", reason=str(error))
    if cancelled() and box.result.verdict != "passed":
        box.result = box.result._replace(verdict="cancelled", reason="It was cancelled.")
    return box.result._replace(ended=max(time.time(), started))


class _Box:
    """One execution; `result` is what is known of it so far."""

    def __init__(self, job: Job, blank: Result, cancelled: Callable[[], bool]) -> None:
        self._job = job
        self._cancelled = cancelled
        self.result = blank

    def work(self) -> None:
        if self._job.source is None:
            self._measured(inputs.measure(self._job))
            self._inside(None)
            return
        with copies.made(shelf.place_of(self.result.id)) as copy:
            self._measured(inputs.take(self._job, copy))
            self._inside(copy)

    def _measured(self, digest: str) -> None:
        self._know(digests=self.result.digests._replace(inputs=digest))

    def _inside(self, source: str | None) -> None:
        if self._cancelled():
            return
        with self._sandbox(source) as sandbox:
            wall = registry.load(sandbox.driver, BlockingIO())
            self._know(driver=sandbox.driver, isolation=wall.isolation)
            offered = drive(wall.offers()).capabilities
            if Capability.NETWORK_NONE not in offered:
                raise Unsupported(
                    f"The {wall.name} driver cannot keep a job from the network, so it runs none.",
                    hint="Leave driver= out: the strongest wall that is ready is taken.",
                )
            for path, data in self._job.files.items():
                sandbox.files.write(path, data)
            # Whoever wants it cancelled destroys the sandbox, if it was there when he looked.
            if self._cancelled():
                return
            ended = _run(sandbox, self._job, commands=Capability.COMMANDS in offered)
            self._note(ended, {} if ended.timed_out else self._files(sandbox))

    def _know(self, **facts: object) -> None:
        self.result = self.result._replace(**facts)  # type: ignore[arg-type]  # fields of a Result

    def _sandbox(self, source: str | None) -> Sandbox:
        job = self._job
        return Sandbox.create(
            walls.able(job),
            # What is ignored is not in the copy.
            source=source,
            # It is the job's own, and a test may write anywhere.
            preset=None if source is None else EVERYTHING,
            packages=job.packages,
            network="none",
            resources=job.resources,
            env={**ENVIRONMENT, **job.env},
            labels={LABEL: self.result.id},
            timeout=job.timeout,
            lifetime=job.timeout + _SPARE,
        )

    def _files(self, sandbox: Sandbox) -> dict[str, str]:
        """The digests of the outputs, as far as they are there."""
        found: dict[str, str] = {}
        for wanted in self._job.outputs:
            paths = _matching(sandbox, wanted)
            if not paths:
                self._know(reason=f"It made no {wanted}.")
            for path in paths:
                found[path] = _file_digest(sandbox, path)
        return dict(sorted(found.items()))

    def _note(self, ended: _Ended, files: dict[str, str]) -> None:
        stdout, stderr = text_digest(ended.stdout), text_digest(ended.stderr)
        text = {"stdout": stdout, "stderr": stderr} if self._job.compare_text else {}
        everything = digest_of({"exit_code": ended.exit_code, "files": files, **text})
        verdict, reason = self._judge(ended)
        self._know(
            verdict=verdict,
            reason=reason,
            exit_code=ended.exit_code,
            stdout=_cut(ended.stdout),
            stderr=_cut(ended.stderr),
            truncated=ended.truncated or max(len(ended.stdout), len(ended.stderr)) > _KEPT,
            duration=ended.duration,
            files=files,
            digests=self.result.digests._replace(outputs=everything, stdout=stdout, stderr=stderr),
        )

    def _judge(self, ended: _Ended) -> tuple[Verdict, str]:
        if ended.timed_out:
            return "timed_out", f"It took longer than {self._job.timeout:g} s."
        if ended.exit_code != 0:
            return "failed", f"Its exit code is {ended.exit_code}."
        return ("failed", self.result.reason) if self.result.reason else ("passed", "")


def _run(sandbox: Sandbox, job: Job, *, commands: bool) -> _Ended:
    if job.code is not None and not commands:
        cell = sandbox.run_code(job.code, timeout=job.timeout, max_output=_MOST_OUTPUT)
        code = None if cell.timed_out else int(cell.error is not None)
        said = cell.stderr + (cell.error.traceback if cell.error else "")
        return _Ended(code, cell.stdout, said, cell.timed_out, cell.truncated, cell.duration)
    # From standard input: a program may be longer than an argument, and no file of ours is in its workspace.
    command = ["python3", "-"] if job.code is not None else job.command
    assert command is not None  # noqa: S101  # `check_job` has seen to it
    line = isinstance(command, str)
    done = sandbox.run(
        command if line else list(command),
        shell="sh" if line else None,  # the one that every machine has
        stdin=job.code,
        timeout=job.timeout,
        max_output=_MOST_OUTPUT,
    )
    code = None if done.timed_out else done.exit_code
    return _Ended(code, done.stdout, done.stderr, done.timed_out, done.truncated, done.duration)


def _matching(sandbox: Sandbox, wanted: str) -> list[str]:
    if not any(sign in wanted for sign in _GLOB):
        return [wanted] if sandbox.files.exists(wanted) else []
    matches = sandbox.files.search(wanted, limit=_MOST_FILES + 1)
    if len(matches) > _MOST_FILES:
        raise FileError(
            f"More than {_MOST_FILES} files are like {wanted}; write it more closely.", errno=7, path=wanted
        )
    return sorted(match.path for match in matches)


def _file_digest(sandbox: Sandbox, path: str) -> str:
    digest, offset = hashlib.sha256(), 0
    while piece := sandbox.files.read_bytes(path, offset=offset, size=_PIECE):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()


def _cut(text: str) -> str:
    return text[:_KEPT]
