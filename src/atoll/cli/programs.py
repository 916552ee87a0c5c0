"""What `run` and `exec` are asked to run: a command, or a program in one of the languages."""

from __future__ import annotations

import os
import posixpath
from argparse import Namespace
from typing import NamedTuple

from ..errors import InvalidInput
from ..sync.sandbox import Sandbox
from . import deps, languages, streaming
from .languages import Language
from .options import start_directory
from .output import complain
from .parsing import UsageError
from .values import timeout, variables

NOT_FOUND = 127


class Program(NamedTuple):
    """A file for an interpreter or a compiler. It is uploaded as it is, never pasted into a command line."""

    language: Language
    name: str
    content: bytes
    arguments: list[str]


class Job(NamedTuple):
    """One thing to run, checked before there is a sandbox for it."""

    what: str | list[str] | Program
    deps: deps.Manifest | None
    stdin: bool
    env: dict[str, str]
    workdir: str | None
    timeout: float | str | None


def job(args: Namespace, words: list[str], after: list[str] | None) -> Job:
    """What was asked for; `after` are the words behind `--`.

    Raises:
        UsageError, InvalidInput: it makes no sense.
        OSError: a file cannot be read.
    """
    stdin = not args.no_stdin and streaming.stdin_to_pass_on()
    what: str | list[str] | Program
    if args.file is not None and args.file != "-":
        language = languages.by_name(args.lang) if args.lang else languages.by_file(args.file)
        what = Program(language, os.path.basename(args.file), _content(args.file), [*words, *(after or ())])
    elif args.lang or args.file:
        what, stdin = _inline(args, words, after or [], stdin=stdin)
    else:
        what = _command(words, after)
    manifest = deps.read(args.deps) if args.deps is not None else None
    return Job(what, manifest, stdin, variables(args.env), start_directory(args), timeout(args.timeout))


def _content(path: str) -> bytes:
    if os.path.isdir(path):
        raise InvalidInput(f"{path} is a directory; --file takes one file, --source a whole directory.")
    with open(path, "rb") as file:
        return file.read()


def _inline(args: Namespace, words: list[str], after: list[str], *, stdin: bool) -> tuple[Program, bool]:
    """A program that is the first argument or else our standard input, and whether stdin is left for it."""
    if not args.lang:
        raise UsageError("A program from standard input has no name that tells its language; say --lang.")
    language = languages.by_name(args.lang)
    name = f"stdin{language.suffixes[0] if language.suffixes else ''}"
    if words and args.file is None:
        return Program(language, name, os.fsencode(words[0]), [*words[1:], *after]), stdin
    if not stdin:
        raise UsageError(
            f"There is no {language.name} program: give --file, or the code as an argument, or pipe it in."
        )
    with open(0, "rb", closefd=False) as file:
        return Program(language, name, file.read(), [*words, *after]), False


def _command(words: list[str], after: list[str] | None) -> str | list[str]:
    if len(words) == 1 and after is None:
        return words[0]
    command = [*words, *(after or ())]
    if not command:
        raise UsageError('There is nothing to run; give a command such as "ls -la", or --file with a program.')
    return command


def run(sandbox: Sandbox, job: Job) -> int:
    """Run it in a sandbox; gives the exit code."""
    if not isinstance(job.what, Program):
        return _stream(sandbox, job.what, job)
    program = job.what
    path = posixpath.join(sandbox.info.spec.workdir, program.name)
    sandbox.files.write(path, program.content)
    script = ["/bin/sh", "-c", program.language.start, "sh", path, *program.arguments]
    code = _stream(sandbox, script, job)
    if code == NOT_FOUND and not _ready(sandbox, program.language, job):
        complain(_missing(sandbox, program.language))
    return code


def prepare(sandbox: Sandbox, job: Job) -> None:
    """Install what the program needs. Raises DepsFailed."""
    if job.deps is not None:
        deps.install(sandbox, job.deps, job.env)


def _stream(sandbox: Sandbox, command: str | list[str], job: Job) -> int:
    env = {**deps.environment(job.deps), **job.env}
    return streaming.run(sandbox, command, stdin=job.stdin, env=env, workdir=job.workdir, timeout=job.timeout)


def _ready(sandbox: Sandbox, language: Language, job: Job) -> bool:
    return sandbox.run(language.ready, env=job.env, workdir=job.workdir).exit_code == 0


def _missing(sandbox: Sandbox, language: Language) -> str:
    """Which tool a language lacks, and how to get it."""
    sentence = f"{language.name} needs {language.needs}, and this sandbox does not have it."
    if sandbox.info.spec.image is not None:
        return f"{sentence} Give an --image that has it."
    from shutil import which

    own = which(language.needs.split()[0].rstrip(","))
    if own is not None and not own.startswith(("/usr/", "/bin/", "/sbin/")):
        sentence += f" Yours at {own} is not seen in there: a sandbox sees this machine's /usr, and nobody's home."
    return f"{sentence} Install it on this machine (`{language.get}`), or give an --image that has it."
