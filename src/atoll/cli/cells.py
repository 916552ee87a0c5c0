"""`--code`: what `run` and `exec` run as a cell, in a context that keeps its state."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any, NamedTuple

from ..errors import Unsupported
from ..sync.sandbox import Sandbox
from ..types import Execution
from . import NOT_FOUND, showing
from .output import complain, say_json
from .parsing import UsageError
from .values import timeout, variables


class CellJob(NamedTuple):
    """A cell to run, checked before there is a sandbox for it. `answers` says whether stdin answers `input()`."""

    code: str
    context: str | None
    language: str | None
    env: dict[str, str]
    workdir: str | None
    timeout: Any
    as_json: bool
    answers: bool


def job(args: Namespace, workdir: str | None) -> CellJob:
    """Raises UsageError, InvalidInput, and OSError for a file that cannot be read."""
    if args.words or args.after or args.file is not None:
        raise UsageError("The cell is the whole of what runs; leave out the command or --file, or leave out --code.")
    if args.code is not None and args.code_file is not None:
        raise UsageError("Give --code or --code-file, not both.")
    if args.deps is not None:
        raise UsageError("--deps is for programs; for cells there is --packages of `atoll run`.")
    code = _code(args)
    answers = args.code != "-" and args.code_file != "-" and not args.no_stdin
    return CellJob(
        code, args.context, args.lang, variables(args.env), workdir, timeout(args.timeout), args.json, answers
    )


def _code(args: Namespace) -> str:
    if args.code is not None and args.code != "-":
        return str(args.code)
    path = "-" if args.code_file is None else args.code_file
    if path == "-" and args.no_stdin:
        raise UsageError("-n keeps standard input away, and the code is to come from there.")
    with open(0 if path == "-" else path, encoding="utf-8", closefd=path != "-") as file:
        try:
            return file.read()
        except UnicodeDecodeError as error:
            raise UsageError(f"The code is not UTF-8 text: {error}.") from None


def run(sandbox: Sandbox, job: CellJob) -> int:
    """Run it, with what it says and shows as it comes; gives the exit code: 1 for a cell that raised, and 127 where
    its language is not there, as for a program.
    """
    try:
        return _run(sandbox, job)
    except Unsupported as error:
        if job.language is None:
            raise
        complain(str(error))
        return NOT_FOUND


def _run(sandbox: Sandbox, job: CellJob) -> int:
    where = {"context": job.context, "language": job.language, "workdir": job.workdir, "timeout": job.timeout}
    ask = answer if job.answers else None
    if job.as_json:
        execution = sandbox.run_code(job.code, env=job.env or None, on_input=ask, **where)
        say_json({"id": sandbox.id, **as_mapping(execution)})
    else:
        show = showing.Showing()
        execution = sandbox.run_code(
            job.code, env=job.env or None, on_stdout=show.on_stdout, on_stderr=show.on_stderr,
            on_result=show.on_result, on_error=show.on_error, on_input=ask, **where,
        )  # fmt: skip
    if execution.error is not None:
        from . import hints

        hints.tell_of_cell(sandbox, execution.error)
    seconds = sandbox.info.spec.timeout if job.timeout == "default" else job.timeout
    return showing.conclude(execution, seconds)


def answer(_prompt: str) -> str | None:
    """A line of standard input for an `input()` inside, or None at its end. The prompt is in the output already."""
    line = bytearray()
    while piece := _read_byte():
        if piece == b"\n":
            return line.decode("utf-8", "replace")
        line += piece
    return line.decode("utf-8", "replace") if line else None


def _read_byte() -> bytes:
    # One at a time: what comes after the line is not ours to take.
    try:
        return os.read(0, 1)
    except OSError as error:
        complain(f"Standard input cannot be read: {error.strerror}.")
        return b""


def as_mapping(execution: Execution) -> dict[str, Any]:
    """For programs that read us."""
    return {
        "text": execution.text,
        "success": execution.success,
        **execution._asdict(),
        "results": [result._asdict() for result in execution.results],
        "error": None if execution.error is None else execution.error._asdict(),
    }
