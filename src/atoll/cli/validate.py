"""`atoll validate`: deterministic checks behind a wall, whose results are kept and sealed."""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import AtollError
from . import FAILED
from .list import span
from .output import STDERR, STDOUT, colourful, complain, paint, say, say_json, table, visible, write
from .parsing import Parser, UsageError, split
from .values import duration, variables, whole_number

if TYPE_CHECKING:
    from ..validation import Job, Result, State

_DESCRIPTION = """\
Run a check in a fresh sandbox of the strongest wall that is ready, without a
network and in a fixed environment, and keep its result with a seal. Whether a
result can be relied on is for `verify` and `gate` to say.
"""

_EPILOG = """\
actions:
  run COMMAND | -- PROGRAM [ARG ...]   to its end; the exit code is the verdict
  begin COMMAND | -- PROGRAM ...       in a process of its own; prints the id
  status ID                            how it stands, and its result
  wait ID                              until it has ended
  cancel ID ...                        end it with all that it started
  list                                 all jobs, newest first (default)
  verify ID | FILE | ID=FILE ...       are they intact, their inputs the same?
  gate ID | FILE | ID=FILE ...         have all passed, and are they fresh?
  recover                              jobs that died; --again runs them
  delete ID ...                        forget jobs and their results
  diagnose                             which wall would be used, and why

A FILE alone may be the result of any job that ran here; ID=FILE is that one's.

examples:
  atoll validate run --source . "make test"
  atoll validate run --code "assert 6 * 7 == 42" -o result.json
  atoll validate begin --source . -t 30m --output dist/*.whl -- make wheel
  atoll validate verify vj-3f --rerun
  atoll validate gate vj-3f result.json --max-age 1d

exit code:
  run, wait: 0 passed, 1 failed, 124 timed out, 125 error, 130 cancelled;
  verify, gate: 0 or 1; others: 0, or 125 when something could not be done
"""

_CODES = {"passed": 0, "failed": 1, "timed_out": 124, "error": FAILED, "cancelled": 130, "interrupted": FAILED}
_COLOURS = {
    "passed": "green", "failed": "red", "error": "red", "timed_out": "red", "cancelled": "yellow",
    "interrupted": "yellow", "running": "cyan", "starting": "cyan",
}  # fmt: skip
_HEADER = ["ID", "STATE", "AGE", "WALL", "TOOK", "WHAT"]
_RUNNING = ("run", "begin")
_LONGEST = 60
_ID_BEGINS = re.compile(r"vj-[0-9a-f]+")


def main(words: list[str]) -> int:
    parser = Parser("validate", "[list] | ACTION [OPTIONS] ...", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("action", nargs="?", default="list", metavar="ACTION", help="what to do; see below")
    add("words", nargs="*", metavar="WORD", help="a command; ids, or beginnings of ids; files with results")
    job = parser.add_argument_group("run, begin, diagnose").add_argument
    job("--code", metavar="CODE", help="a Python program instead of a command; - reads it from standard input")
    job("--source", metavar="DIR", help="the files of DIR as the workspace; DIR itself is never changed")
    job("--ignore", metavar="PATTERN", action="append", default=[], help="leave this of DIR out, as .gitignore does")
    job(
        "--packages", metavar="NAMES", action="append", default=[], help="Python packages to have, such as numpy,pandas"
    )
    job("--output", metavar="PATH", action="append", default=[], help="a file that it must make; globs work")
    job("-e", "--env", metavar="NAME=VALUE", action="append", default=[], help="set a variable; no place for secrets")
    job("-t", "--timeout", metavar="TIME", default="300", help="how long it may take (default: 300)")
    job("--memory", metavar="SIZE", help="limit such as 512M or 2G (default: 512M)")
    job("--disk", metavar="SIZE", help="limit on what is written (default: 1G)")
    job("--pids", metavar="COUNT", help="limit on processes and threads (default: 256)")
    job("-p", "--driver", metavar="NAME", default="strongest", help="the wall (default: strongest)")
    job("--name", metavar="TEXT", default="", help="words of your own")
    job("--any-text", action="store_true", help="verify --rerun may print something else, such as times")
    add("-o", "--result", metavar="FILE", help="run: write the result there too")
    add("--rerun", action="store_true", help="verify: run it once more and compare")
    add("--max-age", metavar="TIME", help="gate: no result may be older, such as 1d")
    add("--again", action="store_true", help="recover: begin them again, under the same ids")
    add("--json", action="store_true", help="as JSON")
    args = _parsed(parser, words)
    action = _ACTIONS.get(args.action)
    if action is None:
        raise UsageError(f"There is no action {args.action!r}; say one of {', '.join(_ACTIONS)}.")
    if args.after is not None and args.action not in (*_RUNNING, "diagnose"):
        raise UsageError(f"Nothing may follow `--` in `atoll validate {args.action}`.")
    return action(args)


def _parsed(parser: Parser, words: list[str]) -> Namespace:
    """With a command, options end at its first word; else they may stand anywhere."""
    _, action, _ = parser.leading(words, lambda _: 1)
    if action and action[0] in _RUNNING:
        return parser.parse_command(words, lambda _: 1)
    before, after = split(words)
    args = parser.parse_intermixed_args(before)
    args.after = after
    return args


def _job(args: Namespace) -> Job:
    """Raises UsageError, InvalidInput."""
    from ..validation import Job

    limits = {"memory": args.memory, "disk": args.disk, "pids": args.pids and whole_number(args.pids, "--pids")}
    return Job(
        command=_command(args),
        code=_code(args.code),
        source=args.source,
        ignore=args.ignore,
        packages=[name for names in args.packages for name in names.split(",") if name.strip()],
        env=variables(args.env),
        outputs=args.output,
        timeout=duration(args.timeout, "--timeout"),
        resources={name: limit for name, limit in limits.items() if limit is not None},
        driver=args.driver,
        compare_text=not args.any_text,
        name=args.name,
    )


def _command(args: Namespace) -> str | list[str] | None:
    words = [*args.words, *(args.after or [])]
    if args.code is not None:
        if words:
            raise UsageError("Give either --code or a command.")
        return None
    if not words:
        raise UsageError('Say what to run, as in `atoll validate run "make test"`.')
    return words[0] if len(words) == 1 and not args.after else words


def _code(given: str | None) -> str | None:
    if given != "-":
        return given
    with open(0, "rb", closefd=False) as stdin:
        return stdin.read().decode("utf-8", "surrogateescape")


def _run(args: Namespace) -> int:
    from ..validation import run
    from .interrupts import Interrupts

    job = _job(args)
    Interrupts()
    result = run(job)
    if args.result is not None:
        from ..validation.shelf import write_copy

        write_copy(result, args.result)
    _tell(result, args)
    return _CODES[result.verdict]


def _begin(args: Namespace) -> int:
    from ..validation import begin

    say(begin(_job(args)))
    return 0


def _status(args: Namespace) -> int:
    from ..validation import status

    state = status(_one(args))
    _tell_state(state, args)
    return 0


def _wait(args: Namespace) -> int:
    from ..validation import wait
    from .interrupts import Interrupts

    id = _one(args)
    Interrupts()
    state = wait(id)
    _tell_state(state, args)
    return _CODES[state.state]


def _cancel(args: Namespace) -> int:
    from ..validation import cancel

    return _each(args, lambda job: say(f"{job}  {cancel(job).state}"))


def _delete(args: Namespace) -> int:
    from ..validation import forget

    def delete(id: str) -> None:
        forget(id)
        say(id)

    return _each(args, delete)


def _list(args: Namespace) -> int:
    from ..validation import jobs

    _no_words(args)
    found = jobs()
    if args.json:
        say_json([_as_json(state) for state in found])
        return 0
    head, *lines = table([_HEADER, *map(_row, found)], _COLOURS, colours=colourful())
    say(paint(head, "bold", wanted=colourful()))
    for line in lines:
        say(line)
    return 0


def _verify(args: Namespace) -> int:
    from ..validation import verify

    bad = 0
    for given in _several(args):
        result, job = _result(given)
        checked = verify(result, job=job, rerun=args.rerun)
        bad += not checked.ok
        if checked.ok and checked.result is not None:
            same = ", and the same again" if args.rerun else ""
            say(f"{checked.result.id}  intact{same}: {checked.result.verdict}")
        for problem in checked.problems:
            complain(f"{given}: {problem}")
    return 1 if bad else 0


def _gate(args: Namespace) -> int:
    from ..validation import gate

    age = None if args.max_age is None else duration(args.max_age, "--max-age")
    wanted: dict[str, str | None] = {}
    for result, job in map(_result, _several(args)):
        if wanted.setdefault(result, job) != job:
            raise UsageError(f"{result} cannot be the result of several jobs; name it once.")
    found = gate(wanted, max_age=age)
    for problem in found.problems:
        complain(problem)
    if found.open:
        say(f"open: {len(found.results)} passed")
    return 0 if found.open else 1


def _recover(args: Namespace) -> int:
    from ..validation import begin, recover

    _no_words(args)
    for state in recover():
        if args.again:
            begin(state.id)
        say(f"{state.id}  {'begun again' if args.again else state.state}")
    return 0


def _diagnose(args: Namespace) -> int:
    from ..validation import diagnose

    asked = args.words or args.after or args.code is not None
    found = diagnose(_job(args) if asked else None)
    if args.json:
        say_json({**found._asdict(), "walls": [wall._asdict() for wall in found.walls]})
    else:
        say(found.why)
        for line in table(
            [[wall.name, wall.isolation, wall.reason or "ready"] for wall in found.walls], {}, colours=False
        ):
            say(f"  {line}")
    return 0 if found.chosen else FAILED


_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "run": _run,
    "begin": _begin,
    "status": _status,
    "wait": _wait,
    "cancel": _cancel,
    "list": _list,
    "verify": _verify,
    "gate": _gate,
    "recover": _recover,
    "delete": _delete,
    "diagnose": _diagnose,
}


def _no_words(args: Namespace) -> None:
    if args.words:
        raise UsageError(f"Write it as `atoll validate {args.action}`, without {args.words[0]!r}.")


def _one(args: Namespace) -> str:
    from ..validation.shelf import resolve

    if len(args.words) != 1:
        raise UsageError(f"Write it as `atoll validate {args.action} ID`.")
    return resolve(args.words[0])


def _several(args: Namespace) -> list[str]:
    if not args.words:
        raise UsageError(f"Write it as `atoll validate {args.action} ID ...`.")
    words: list[str] = args.words
    return words


def _each(args: Namespace, action: Callable[[str], object]) -> int:
    from ..validation.shelf import resolve

    code = 0
    for word in _several(args):
        try:
            action(resolve(word))
        except AtollError as error:
            complain(str(error))
            code = FAILED
    return code


def _result(given: str) -> tuple[str, str | None]:
    """The id or the path of a result, and of which job it must be, if that is said. Raises InvalidInput."""
    from ..validation.results import is_id
    from ..validation.shelf import resolve

    job, equals, path = given.partition("=")
    if equals and is_id(job):
        return os.path.abspath(path), job
    # Whoever can put files here has no say in what an id means; such a file is ./vj-3f.
    there = os.path.exists(given)
    if there and not _ID_BEGINS.fullmatch(given):
        return os.path.abspath(given), None
    return resolve(given, nor="" if there else ", and no such file"), None


def _tell(result: Result, args: Namespace) -> None:
    if args.json:
        from ..validation.results import result_to_json

        say_json(result_to_json(result))
        return
    _pass_on(STDOUT, result.stdout)
    _pass_on(STDERR, result.stderr)
    if result.truncated:
        complain("Some of what it said is not here: it was more than is kept.")
    for path, digest in result.files.items():
        complain(f"{path}  sha256:{digest}")
    reason = f" {result.reason}" if result.reason else ""
    wall = f" behind {result.driver}" if result.driver else ""
    complain(f"{result.id} {result.verdict}{wall}.{reason}")


def _pass_on(fd: int, text: str) -> None:
    """What the job said: as it is to a pipe, and to a terminal without what would steer it."""
    if os.isatty(fd):
        text = "".join(character if character in "\n\t" else visible(character) for character in text)
    write(fd, text.encode("utf-8", "backslashreplace"))


def _tell_state(state: State, args: Namespace) -> None:
    if args.json:
        say_json(_as_json(state))
    elif state.result is not None:
        _tell(state.result, args)
    else:
        by = f", by the process {state.pid}" if state.pid else ""
        complain(f"{state.id} is {state.state}{by}.")


def _as_json(state: State) -> dict[str, Any]:
    from ..validation.results import result_to_json

    return {**state._asdict(), "result": None if state.result is None else result_to_json(state.result)}


def _row(state: State) -> list[str]:
    result = state.result
    took = "-" if result is None or result.driver is None else f"{result.duration:.1f}s"
    wall = (result.driver if result is not None else None) or "-"
    return [state.id, state.state, span(time.time() - state.created), wall, took, _what(state)]


def _what(state: State) -> str:
    from ..validation.shelf import job_of

    job, _ = job_of(state.id)
    command = job.command if isinstance(job.command, str) else " ".join(job.command or ())
    text = state.name or command or (job.code or "").strip().split("\n")[0]
    return visible(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
