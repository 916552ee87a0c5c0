"""What `run` and `exec` are asked to run: a command, or a program in one of the languages."""

from __future__ import annotations

import errno
import os
import posixpath
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import FileDenied, FileError, InvalidInput
from ..sync.sandbox import Sandbox
from ..types import Completed
from . import NOT_FOUND, streaming
from .output import complain, say_json
from .parsing import UsageError
from .values import timeout, variables

if TYPE_CHECKING:
    from .deps import Manifest
    from .languages import Language

TIMED_OUT = 124
# Where there is no wall, commands see the workspace at another path than the API does, and only they can tell.
_FIND = 'file=$(cd -- "$1" && pwd)/$2; shift 2; set -- "$file" "$@"\n'


class Program(NamedTuple):
    """A file for an interpreter or a compiler. It is uploaded as it is, never pasted into a command line."""

    language: Language
    name: str
    content: bytes
    arguments: list[str]


class Job(NamedTuple):
    """One thing to run, checked before there is a sandbox for it.

    `terminal` says that it gets the user's terminal, `keyless` that it does not, though there is a keyboard.
    `late` is an option of atoll's among the words of the command.
    """

    what: str | list[str] | Program
    deps: Manifest | None
    stdin: bool
    env: dict[str, str]
    workdir: str | None
    timeout: float | str | None
    late: str | None
    terminal: bool
    keyless: bool
    as_json: bool


def job(args: Namespace, workdir: str | None) -> Job:
    """What was asked for; `workdir` is where to start.

    Raises:
        UsageError, InvalidInput: it makes no sense.
        OSError: a file cannot be read.
    """
    words: list[str] = args.words
    after: list[str] | None = args.after  # what followed a `--`
    stdin = not args.no_stdin and streaming.stdin_to_pass_on()
    what: str | list[str] | Program
    if args.file is not None and args.file != "-":
        what = _file(args, [*words, *(after or ())])
    elif args.lang or args.file:
        what, stdin = _inline(args, words, after or [], stdin=stdin)
    else:
        what = _command(words, after)
    manifest = _manifest(args.deps, args.file, what)
    terminal = _gets_terminal(args, what)
    keyless = not terminal and not args.no_stdin and os.isatty(0)
    # Who sits at a keyboard may think for longer than any limit, and ends a command with Ctrl-C.
    seconds = None if terminal and args.timeout is None else timeout(args.timeout)
    return Job(what, manifest, stdin, variables(args.env), workdir, seconds, args.late, terminal, keyless, args.json)


def _gets_terminal(args: Namespace, what: str | list[str] | Program) -> bool:
    """Whether the user's terminal becomes the command's. Raises UsageError where that is asked for and cannot be."""
    if args.no_stdin and (args.tty or args.interactive):
        raise UsageError("-n keeps standard input from the command, and -i passes it on; leave one of them out.")
    if not args.tty and (args.json or args.no_stdin or isinstance(what, Program) or not os.isatty(0)):
        return False
    from . import terminals

    if not args.tty:
        return terminals.is_whole()
    if args.json:
        raise UsageError("--json prints what a command has written, and on a terminal that is there already.")
    if not terminals.is_there():
        raise UsageError("--tty needs a terminal, as input and as output; without one, leave it out.")
    return True


def _manifest(path: str | None, file: str | None, what: str | list[str] | Program) -> Manifest | None:
    """What --deps means: a file that it names, or else the one that lies beside the program."""
    if path is None:
        return None
    from . import deps

    if path:
        return deps.read(path)
    if not isinstance(what, Program) or file in (None, "-"):
        raise UsageError("--deps without a path looks beside --file, and there is none; name the file with it.")
    return deps.read(deps.beside(str(file), what.language.name))


def _file(args: Namespace, arguments: list[str]) -> Program:
    from . import languages

    if os.path.isdir(args.file):
        raise InvalidInput(f"{args.file} is a directory; --file takes one file, --source a whole directory.")
    language = languages.by_name(args.lang) if args.lang else languages.by_file(args.file)
    return Program(language, os.path.basename(args.file), _content(args.file), arguments)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _inline(args: Namespace, words: list[str], after: list[str], *, stdin: bool) -> tuple[Program, bool]:
    """A program that is the first argument or else our standard input, and whether stdin is left for it."""
    from . import languages

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
    command: list[str] = [*words, *(after or ())]
    if len(command) == 1 and after is None and command[0].strip():
        return command[0]
    if not "".join(command).strip():
        raise UsageError(
            'There is nothing to run; give a command such as "ls -la", --file with a program, or --code with a cell.'
        )
    return command


def run(sandbox: Sandbox, job: Job) -> int:
    """Run it in a sandbox, and say what is known of a failure; gives the exit code."""
    what = job.what
    completed = _run_program(sandbox, what, job) if isinstance(what, Program) else _stream(sandbox, what, job)
    if not completed.success or job.keyless:
        from . import hints

        hints.tell(job, completed)
    if job.as_json:
        say_json({"id": sandbox.id, "success": completed.success, **_plain(completed)})
    return TIMED_OUT if completed.timed_out else completed.exit_code


def _run_program(sandbox: Sandbox, program: Program, job: Job) -> Completed:
    workspace = sandbox.info.spec.workdir
    put(sandbox, posixpath.join(workspace, program.name), program.content)
    start = posixpath.join(workspace, job.workdir or "")
    script = [
        "/bin/sh",
        "-c",
        _FIND + program.language.program,
        "sh",
        posixpath.relpath(workspace, start),
        program.name,
    ]
    completed = _stream(sandbox, [*script, *program.arguments], job)
    if completed.exit_code == NOT_FOUND and not _ready(sandbox, program.language, job):
        complain(_missing(sandbox, program.language))
    return completed


def put(sandbox: Sandbox, path: str, content: bytes) -> None:
    """Have a file in the workspace; where it may not be written, the source may have the very same.

    Raises:
        FileDenied: the rules for the source do not let it be written.
    """
    try:
        sandbox.files.write(path, content)
    except FileDenied as error:
        try:
            there = sandbox.files.read_bytes(path, size=len(content) + 1)
        except FileError:
            there = None
        if there != content:
            raise FileDenied(
                f"{path} cannot be written by the rules for the source; give --preset development, or full-access.",
                errno=error.errno or errno.EACCES,
                path=path,
            ) from None


def prepare(sandbox: Sandbox, job: Job) -> None:
    """Install what the program needs. Raises DepsFailed."""
    if job.deps is not None:
        from . import deps

        deps.install(sandbox, job.deps, job.env)


def _stream(sandbox: Sandbox, command: str | list[str], job: Job) -> Completed:
    packages: Mapping[str, str] = {} if job.deps is None else job.deps.kind.env
    env = {**packages, **job.env}
    if job.terminal:
        from . import terminals

        return terminals.run(sandbox, command, env=env, workdir=job.workdir, timeout=job.timeout)
    return streaming.run(
        sandbox, command, stdin=job.stdin, env=env, workdir=job.workdir, timeout=job.timeout, keep=job.as_json
    )


def _ready(sandbox: Sandbox, language: Language, job: Job) -> bool:
    return sandbox.run(language.ready, env=job.env, workdir=job.workdir).exit_code == 0


def _missing(sandbox: Sandbox, language: Language) -> str:
    """Which tool a language lacks, and how to get it."""
    from shutil import which

    from ..guest.toolchains import lacking, remedy

    image = sandbox.info.spec.image is not None
    sentence = lacking(language)
    own = None if image else which(language.needs.split()[0].rstrip(","))
    if own is not None and not own.startswith(("/usr/", "/bin/", "/sbin/")):
        sentence += f" Yours at {own} is not seen in there: a sandbox sees this machine's /usr, and nobody's home."
    return f"{sentence} {remedy(language, image)}"


def _plain(completed: Completed) -> dict[str, Any]:
    """What came of a command, as JSON has it: output that is no text is there in base64, too."""
    told = completed._asdict()
    if told.pop("raw") is not None:
        from base64 import b64encode

        told["stdout_base64"] = b64encode(completed.stdout_bytes).decode()
        told["stderr_base64"] = b64encode(completed.stderr_bytes).decode()
    return told
